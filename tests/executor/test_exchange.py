"""Gradients are announced as soon as they are there, averaged over contributors, and received by all workers."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from distributed_training import CPU, DEPTH, RECIPE, STEPS, emulated, rounds, tiny  # noqa: E402

from jigsaw_opt.errors import UsageError  # noqa: E402
from jigsaw_opt.executor.building import build_network, replica  # noqa: E402
from jigsaw_opt.executor.exchange import Averaging, Exchange  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402
from jigsaw_opt.executor.schedule import LevelSchedule  # noqa: E402
from jigsaw_opt.executor.worker import Worker  # noqa: E402
from jigsaw_opt.problem.costs import contributors, staircase  # noqa: E402

FULL = [(DEPTH, DEPTH)] * STEPS
STAIRCASE = [LevelSchedule(DEPTH, 3, warm_up=1).levels(iteration) for iteration in range(8)]


@pytest.fixture(scope="module")
def found() -> list[tuple[list[list[torch.Tensor]], list[torch.Tensor]]]:
    """By process: parameters of a full job of two, two staircase jobs of three, and of a pair under DDP."""
    plans = [
        ((0, 1), FULL, Averaging.AVG_W_COUNT),
        ((2, 0, 1), STAIRCASE, Averaging.AVG_W_COUNT),
        ((0, 1, 2), STAIRCASE, Averaging.AVG),
    ]
    return run_group(rounds, 3, plans)


def test_at_full_depth_training_equals_distributed_data_parallel_step_by_step(found) -> None:
    for states, reference in found[:2]:
        assert len(states[0]) == len(reference) == STEPS
        for own, theirs in zip(states[0], reference, strict=True):
            torch.testing.assert_close(own, theirs, rtol=0, atol=1e-6)
    first, last = found[0][1][0], found[0][1][-1]
    assert (first - last).abs().max() > 1e-2


@pytest.mark.parametrize("averaging", Averaging)
def test_partial_gradients_are_averaged_as_defined_and_all_workers_agree(found, averaging: Averaging) -> None:
    job = 1 if averaging is Averaging.AVG_W_COUNT else 2
    counts = [[contributors(levels, bucket) for bucket in range(1, DEPTH + 1)] for levels in STAIRCASE]
    assert counts[0] == [3] * DEPTH and counts[1][-1] == 1
    expected = emulated(STAIRCASE, counts if job == 1 else [[3] * DEPTH] * len(STAIRCASE))
    for states, _ in found:
        for own, reference in zip(states[job], expected, strict=True):
            torch.testing.assert_close(own, reference, rtol=0, atol=1e-6)
    assert all(torch.equal(states[job][-1], found[0][0][job][-1]) for states, _ in found)


def test_the_two_averages_differ_only_after_the_warm_up(found) -> None:
    mean, divided = found[0][0][1], found[0][0][2]
    # The workers stand in another order, so their sums may round differently.
    torch.testing.assert_close(mean[0], divided[0], rtol=0, atol=1e-6)
    assert (mean[1] - divided[1]).abs().max() > 1e-4


@pytest.mark.parametrize("level", range(1, DEPTH + 1))
def test_a_bucket_is_announced_when_it_is_complete_and_before_the_next_one_begins(level: int) -> None:
    worker = Worker(0, tiny(), RECIPE, CPU)
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
    worker = Worker(0, tiny_replica, RECIPE, CPU)
    announced: list[int] = []
    worker.block(5, announced.append)
    assert announced == [1, 2, 3, 4, 5]
    worker.block(1, announced.append)
    assert announced == [1, 2, 3, 4, 5, 1]


def test_the_step_belongs_to_the_next_block() -> None:
    worker = Worker(0, tiny(), RECIPE, CPU)
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


def test_some_worker_must_reach_every_bucket() -> None:
    with pytest.raises(UsageError, match="level 4"):
        Exchange((0, 1)).prepare([(4, 4), (3, 2)], 4)


def test_parameters_of_one_bucket_must_be_alike() -> None:
    network = build_network("mlp", {"hidden": [8]})
    network.units["dense0"].double()
    with pytest.raises(UsageError, match="differ"):
        Worker(0, replica(network, (0, 2), 4), RECIPE, CPU)


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
    for wrong in ({"workers": 0}, {"granularity": 0}, {"warm_up": -1}, {"depth": 0}):
        with pytest.raises(UsageError):
            LevelSchedule(**{"depth": 2, "workers": 2, **wrong})
