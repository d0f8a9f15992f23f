"""Gradients are announced as soon as they are there, averaged over contributors, and received by all workers."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from distributed_training import CPU, DEPTH, RECIPE, STEPS, emulated, flat, rounds, tiny
from spb.emulation import Emulation

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.exchange.by_bucket import Averaging, GradientExchange
from jigsaw_opt.executor.level_schedule import LevelSchedule
from jigsaw_opt.executor.models.building import build_network, replica
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.worker import OPTIMISERS, ZooWorker
from jigsaw_opt.problem.costs import contributors, staircase
from tests.refusals import misuse

FULL = [(DEPTH, DEPTH)] * STEPS
STAIRCASE = [LevelSchedule(DEPTH, 3, warm_up=1).levels(iteration) for iteration in range(8)]
PLANS = {
    "staircase": [LevelSchedule(DEPTH, 3, assignment="permutation").levels(iteration) for iteration in range(5)],
    "free": [LevelSchedule(DEPTH, 3, "free", warm_up=2).levels(iteration) for iteration in range(5)],
}
CASES = [("staircase", Averaging.AVG), ("free", Averaging.AVG_W_COUNT)]
"""What one process emulates, too."""


States = list["torch.Tensor"]


@pytest.fixture(scope="module")
def found() -> list[tuple[list[States], list[States], States]]:
    """By process: parameters of a full job of two, two staircase ones of three and the cases; of two together; DDP."""
    alone = [
        ((0, 1), FULL, Averaging.AVG_W_COUNT),
        ((2, 0, 1), STAIRCASE, Averaging.AVG_W_COUNT),
        ((0, 1, 2), STAIRCASE, Averaging.AVG),
    ]
    alone += [((0, 1, 2), PLANS[rule], averaging) for rule, averaging in CASES]
    together = [((0, 1, 2), STAIRCASE, Averaging.AVG_W_COUNT), ((1, 2, 0), STAIRCASE[::-1], Averaging.AVG_W_COUNT)]
    return run_group(rounds, 3, alone, together)


def counts(plan: list[tuple[int, ...]]) -> list[list[int]]:
    return [[contributors(levels, bucket) for bucket in range(1, DEPTH + 1)] for levels in plan]


def assert_close(states: States, expected: States) -> None:
    for own, reference in zip(states, expected, strict=True):
        torch.testing.assert_close(own, reference, rtol=0, atol=1e-6)


def test_at_full_depth_training_equals_distributed_data_parallel_step_by_step(found) -> None:
    for (states, *_), _, reference in found[:2]:
        assert len(states) == STEPS
        assert_close(states, reference)
        assert (states[0] - states[-1]).abs().max() > 1e-2


@pytest.mark.parametrize("averaging", Averaging)
def test_partial_gradients_are_averaged_as_defined_and_all_workers_agree(found, averaging: Averaging) -> None:
    by_count = averaging is Averaging.AVG_W_COUNT
    assert counts(STAIRCASE)[0] == [3] * DEPTH and counts(STAIRCASE)[1][-1] == 1
    expected = emulated(STAIRCASE, counts(STAIRCASE) if by_count else [[3] * DEPTH] * len(STAIRCASE))
    jobs = [alone[1 if by_count else 2] for alone, _, _ in found]
    for states in jobs:
        assert_close(states, expected)
        assert torch.equal(states[-1], jobs[0][-1])


def test_jobs_that_share_processes_train_as_if_alone(found) -> None:
    for job, plan in enumerate((STAIRCASE, STAIRCASE[::-1])):
        expected = emulated(plan, counts(plan))
        for _, together, _ in found:
            assert_close(together[job], expected)


@pytest.mark.parametrize("level", range(1, DEPTH + 1))
def test_a_bucket_is_announced_when_it_is_complete_and_before_the_next_one_begins(level: int) -> None:
    worker = ZooWorker(0, tiny(), RECIPE, CPU)
    seen: list[list[torch.Tensor]] = []
    worker.block(level, lambda bucket: seen.append([buffer.clone() for buffer in worker.buckets.buffers]))
    assert len(seen) == level
    for announced, (then, later) in enumerate(pairwise([*seen, list(worker.buckets.buffers)]), 1):
        assert all(torch.equal(then[b], later[b]) for b in range(announced))
        assert all(then[b].any() for b in range(announced))
    for announced, then in enumerate(seen[:-1], 1):
        # A shared table collects its gradient in its own bucket, so even that of the last one is still missing.
        assert not any(then[b].any() for b in range(announced + 1, DEPTH))
    assert not any(buffer.any() for buffer in worker.buckets.buffers[level:])


def test_buckets_without_parameters_or_gradients_are_announced_in_their_turn() -> None:
    network = build_network("mlp", {"hidden": [8, 8]})
    network.units["dense1"].register_parameter("unused", torch.nn.Parameter(torch.ones(2)))
    units = {"head": torch.nn.Identity(), **network.units, "tail": torch.nn.Identity()}
    tiny_replica = replica(type(network)(units, network.loss, network.batch), range(6), 4)
    worker = ZooWorker(0, tiny_replica, RECIPE, CPU)
    announced: list[int] = []
    worker.block(5, announced.append)
    assert announced == [1, 2, 3, 4, 5]
    worker.block(1, announced.append)
    assert announced == [1, 2, 3, 4, 5, 1]


def test_the_step_belongs_to_the_next_block() -> None:
    worker = ZooWorker(0, tiny(), RECIPE, CPU)
    parameter = next(worker.model.parameters())
    before = parameter.detach().clone()
    worker.block(DEPTH, lambda bucket: None)
    assert torch.equal(parameter, before)
    worker.block(1, lambda bucket: None)
    once = parameter.detach().clone()
    assert not torch.equal(once, before)
    worker.step()
    twice = parameter.detach().clone()
    assert not torch.equal(twice, once)
    worker.step()
    assert torch.equal(parameter, twice)


def test_some_worker_must_reach_every_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "new_group", tuple)
    with pytest.raises(UsageError, match="level 4"):
        GradientExchange((0, 1)).run(4, (3, 2), torch.ones(1))


def test_parameters_of_one_bucket_may_differ_in_type() -> None:
    network = build_network("mlp", {"hidden": [8]})
    network.units["dense0"].double()
    worker = ZooWorker(0, replica(network, (0, 2), 4), RECIPE, CPU)
    assert {buffer.dtype for buffer in worker.buckets.of(1)} == {torch.float32, torch.float64}
    assert sum(map(len, worker.buckets.of(1))) == sum(p.numel() for p in worker.model.parameters())


@pytest.mark.parametrize("assignment", ["fixed", "rotation", "permutation"])
def test_levels_are_a_staircase_in_every_iteration(assignment: str) -> None:
    schedule = LevelSchedule(6, 4, assignment=assignment, granularity=2, warm_up=3, seed=1)
    plan = [schedule.levels(iteration) for iteration in range(3 + 2 * 24)]
    assert plan[:3] == [(6,) * 4] * 3
    assert all(sorted(levels) == list(staircase(6, 4)) for levels in plan[3:])
    assert all(plan[i] == plan[i + 1] for i in range(3, len(plan), 2))
    assert plan == [schedule.levels(iteration) for iteration in range(len(plan))]
    turns = plan[3::2]
    if assignment == "rotation":
        assert all(sum(levels[worker] for levels in turns) == 6 * sum(staircase(6, 4)) for worker in range(4))
    assert len(set(turns)) == {"fixed": 1, "rotation": 4}.get(assignment, len(set(turns)))
    assert assignment != "permutation" or len(set(turns)) > 8


def test_full_rule_and_wrong_numbers() -> None:
    assert LevelSchedule(6, 2, rule="full").levels(5) == (6, 6)
    for name, wrong in {"workers": 0, "granularity": 0, "warm_up": -1, "depth": 0, "full_every": -1}.items():
        with misuse(f"out-of-range {name}"):
            LevelSchedule(**{"depth": 2, "workers": 2, name: wrong})
    for name, wrong in {"rule": "nosuch", "assignment": "nosuch"}.items():
        with misuse(f"unknown-value {name}"):
            LevelSchedule(**{"depth": 3, "workers": 2, name: wrong})
    for name, wrong in {"full_every": 1.5, "freeze_from": 1.5, "mean_depth": "3/4", "seed": "x", "depth": True}.items():
        with misuse(f"wrong-type {name}"):
            LevelSchedule(**{"depth": 3, "workers": 2, "iterations": 4} | {name: wrong})


@pytest.mark.parametrize("levels", [(1, 2, 3, 4), (4, 4, 4, 4), (4, 1, 1, 1), (2, 4, 2, 3)])
def test_only_contributors_reduce_and_the_volume_is_that_of_the_specification(
    levels: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, size, done = (5, 3, 8, 6), 12, SimpleNamespace(wait=lambda: None)
    sent: list[tuple[str, int, int]] = []  # what, who, bytes

    def note(kind: str, gradients: torch.Tensor, *_: object, **__: object) -> SimpleNamespace:
        sent.append((kind, dist.get_rank(), gradients.nbytes))
        return done

    monkeypatch.setattr(dist, "new_group", tuple)
    monkeypatch.setattr(dist, "all_reduce", partial(note, "reduce"))
    monkeypatch.setattr(
        dist, "broadcast", lambda part, rank, *_, **__: note("give" if rank == dist.get_rank() else "take", part)
    )
    monkeypatch.setattr(dist, "P2POp", lambda send, part, *_: note("send" if send is dist.isend else "receive", part))
    monkeypatch.setattr(dist, "batch_isend_irecv", lambda works: works)
    monkeypatch.setattr(dist, "get_backend_config", lambda group: "cpu:gloo,cuda:gloo")
    exchange = GradientExchange(ranks)
    for bucket in range(1, DEPTH + 1):
        sent.clear()
        for worker in ranks:
            monkeypatch.setattr(dist, "get_rank", lambda worker=worker: worker)
            exchange.run(bucket, levels, torch.ones(size))
        reaching = {rank for rank, level in zip(ranks, levels, strict=True) if level >= bucket}
        by_kind = {
            kind: [transfer for transfer in sent if transfer[0] == kind]
            for kind in ("reduce", "send", "receive", "give", "take")
        }
        moved = {kind: sum(nbytes for *_, nbytes in those) for kind, those in by_kind.items()}
        c, w, whole = len(reaching), len(ranks), 4 * size
        if c == w:
            assert moved == dict.fromkeys(moved, 0) | {"reduce": w * whole}  # of which each moves 2(w-1)/w
            continue
        assert {who for kind, who, _ in sent if kind in ("send", "receive", "give")} <= reaching
        assert moved["reduce"] == 0 and moved["send"] == moved["receive"] == (c - 1) * whole
        assert moved["give"] == whole and moved["take"] == (w - 1) * whole


def in_turn(plan: list[tuple[int, ...]], averaging: Averaging) -> list[torch.Tensor]:
    """Parameters after each iteration of workers that take turns in this process."""
    own = tiny()
    optimiser = OPTIMISERS[RECIPE.optimiser](own.model.parameters(), **RECIPE.options)
    emulation, states = Emulation(own.model, optimiser, averaging), []
    for iteration, levels in enumerate(plan):
        batches = [own.batch(RECIPE.seed, worker, iteration) for worker in range(len(levels))]
        assert emulation.iterate(levels, batches).shape == (3,)
        states.append(flat(own.model.parameters()))
    return states


@pytest.mark.parametrize("case", range(len(CASES)))
def test_workers_that_take_turns_in_one_process_learn_the_same(found, case: int) -> None:
    expected = in_turn(PLANS[CASES[case][0]], CASES[case][1])
    assert (expected[0] - expected[-1]).abs().max() > 1e-2
    for alone, _, _ in found:
        assert_close(alone[3 + case], expected)


def test_what_nobody_reaches_stays_as_it_is() -> None:
    own = tiny()
    emulation = Emulation(own.model, torch.optim.SGD(own.model.parameters(), 0.1, weight_decay=0.1))
    before = [flat(bucket) for bucket in own.model.buckets]
    emulation.iterate((3, 2), [own.batch(0, worker, 0) for worker in range(2)])
    after = [flat(bucket) for bucket in own.model.buckets]
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [False, False, False, True]
    emulation.iterate((4, 2), [own.batch(0, worker, 1) for worker in range(2)])
    assert not torch.equal(before[3], flat(own.model.buckets[3]))


def of_bucket(plan: list[tuple[int, ...]], bucket: int) -> list[int]:
    return [contributors(levels, bucket) for levels in plan]


@pytest.mark.parametrize("assignment", ["fixed", "rotation", "permutation"])
@pytest.mark.parametrize(("mean", "counts"), [(0, {3, 4}), (1, {6}), (Fraction(1, 2), {2, 3}), (Fraction(1, 9), {2})])
def test_two_levels_give_each_bucket_but_the_first_equally_many_contributors(
    assignment: str, mean: Any, counts: set[int]
) -> None:
    """A staircase of 5 levels and 6 workers has 19 in all: (19 - 6) / 4 workers at full depth."""
    schedule = LevelSchedule(5, 6, "two_level", assignment, min_contributors=2, mean_depth=Fraction(mean))
    plan = [schedule.levels(iteration) for iteration in range(120)]
    assert of_bucket(plan, 1) == [6] * 120 and {*of_bucket(plan, 5)} == counts
    assert of_bucket(plan, 2) == of_bucket(plan, 3) == of_bucket(plan, 5)
    total = max(Fraction(mean) * 30 or sum(staircase(5, 6)), 6 + 2 * 4)
    assert sum(map(sum, plan)) == 120 * total
    if assignment == "rotation":
        assert {sum(levels[worker] for levels in plan) for worker in range(6)} == {20 * total}


def test_two_levels_have_the_least_variance_for_their_work() -> None:
    """By all lists of levels of 4 workers and 4 parts with the sum of a staircase."""
    schedule = LevelSchedule(4, 4, "two_level")

    def variance(levels: tuple[int, ...]) -> float:
        return sum(1 / max(1e-9, contributors(levels, bucket)) for bucket in range(1, 5))

    every = [levels for levels in product(range(1, 5), repeat=4) if sum(levels) == sum(staircase(4, 4))]
    assert variance(schedule.levels(0)) == min(map(variance, every)) < variance(staircase(4, 4))


def test_uniform_levels_take_turns_and_full_depth_comes_again() -> None:
    uniform = LevelSchedule(3, 2, "uniform", warm_up=1, full_every=3)
    assert [uniform.levels(iteration) for iteration in range(8)] == [(n, n) for n in (3, 3, 2, 3, 1, 3, 3, 2)]
    rotation = LevelSchedule(4, 4, full_every=2)
    plan = [rotation.levels(iteration) for iteration in range(8)]
    assert plan[1::2] == [(4,) * 4] * 4
    assert plan[::2] == [LevelSchedule(4, 4).levels(iteration) for iteration in range(4)]


def test_parts_are_frozen_one_after_the_other() -> None:
    full = LevelSchedule(4, 2, "full", freeze_from=3, iterations=9)
    assert [full.levels(iteration)[0] for iteration in range(11)] == [4, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    turns = LevelSchedule(4, 2, freeze_from=3, iterations=9)
    assert turns.levels(2) == (2, 4) and turns.levels(4) == (2, 3) and turns.levels(8) == (1, 1)
    for wrong in ({"freeze_from": 9, "iterations": 9}, {"freeze_from": -1, "iterations": 9}):
        with misuse("out-of-range freeze_from"):
            LevelSchedule(4, 2, **wrong)
    with misuse("out-of-range freeze_from", naming=("`iterations` is not given",)):
        LevelSchedule(4, 2, freeze_from=3)


def test_free_levels_keep_one_worker_at_full_depth_and_use_all_others() -> None:
    schedule = LevelSchedule(DEPTH, 3, "free", granularity=2, warm_up=1, seed=5)
    plan = [schedule.levels(iteration) for iteration in range(1 + 2 * 200)]
    assert plan[0] == (DEPTH,) * 3 and plan[1::2] == plan[2::2]
    assert all(max(levels) == DEPTH for levels in plan)
    for worker in range(3):
        assert {levels[worker] for levels in plan} == set(range(1, DEPTH + 1))
    mean = sum(map(sum, plan[1:])) / (len(plan[1:]) * 3 * DEPTH)
    assert mean == pytest.approx((1 + 2 * 2.5 / 4) / 3, abs=0.03)
    pairs = LevelSchedule(DEPTH, 3, "free", min_contributors=2)
    counts = [levels.count(DEPTH) for levels in map(pairs.levels, range(50))]
    assert set(counts) == {2, 3}
    with misuse("out-of-range min_contributors"):
        LevelSchedule(DEPTH, 3, "free", min_contributors=4)
