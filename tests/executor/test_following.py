"""Loops of one's own that follow a plan: turns on GPUs, equal results, and errors."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from time import sleep
from typing import Any

import pytest
import torch
import torch.distributed as dist
from replayed import instance
from torch import nn

import jigsaw_opt.executor.following as module
from jigsaw_opt.errors import CheckFailedError, RunFailedError
from jigsaw_opt.executor.exchange.compression import EightBit
from jigsaw_opt.executor.following import PlanTurns, following
from jigsaw_opt.executor.partial import PartialBackprop
from jigsaw_opt.executor.processes import run_group
from jigsaw_opt.executor.schedules.clock import ReplayClock
from jigsaw_opt.executor.schedules.link_order import HashStore
from jigsaw_opt.executor.schedules.order import ReplayExtent, ReplayOrder, TransferKey
from jigsaw_opt.problem import FullDepth, Instance, JobExchange, Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.refusals import misuse

STEPS = 6
CUTS = ["2", "4"]


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))


def batch(job: str, rank: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    own = torch.Generator().manual_seed(1000 * iteration + 10 * rank + ord(job))
    return torch.randn(4, 8, generator=own), torch.randint(4, (4,), generator=own)


def train(job: str, model: PartialBackprop, steps: int) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for iteration in range(steps):
        optimiser.zero_grad()
        inputs, targets = batch(job, model.rank, iteration)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if job == "a":
            sleep(0.003)  # the others would overtake it
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@contextmanager
def noted(clock: ReplayClock) -> Iterator[dict[str, Any]]:
    """Note when blocks begin and end, and by iteration and bucket when transfers do."""
    moments: dict[str, Any] = {"begin": [], "end": [], "transfers": {}}
    begin, end, transfer = PlanTurns.begin_block, PlanTurns.end_block, PlanTurns.transfer

    def begun(self: PlanTurns, iteration: int) -> None:
        begin(self, iteration)
        moments["begin"].append(clock.now())

    def ended(self: PlanTurns, device: torch.device) -> None:
        moments["end"].append(clock.now())
        end(self, device)

    @contextmanager
    def transferred(self: PlanTurns, iteration: int, bucket: int, is_first: bool, is_last: bool) -> Iterator[None]:
        assert is_first and is_last  # the parameters of a bucket are few
        with transfer(self, iteration, bucket, is_first, is_last):
            begin = clock.now()
            if self.follows(self._order.jobs[0]):
                sleep(0.002)  # the others would overtake it
            yield
            moments["transfers"][iteration, bucket] = begin, clock.now()

    PlanTurns.begin_block, PlanTurns.end_block = begun, ended  # type: ignore[method-assign]
    PlanTurns.transfer = transferred  # type: ignore[method-assign]
    try:
        yield moments
    finally:
        PlanTurns.begin_block, PlanTurns.end_block = begin, end  # type: ignore[method-assign]
        PlanTurns.transfer = transfer  # type: ignore[method-assign]


def weighted(job: str, rank: int, model: PartialBackprop) -> PartialBackprop:
    """Have the workers of one job count by their samples, and those of the other send gradients of 8 bits."""
    model.samples = 1 + rank if job == "a" else None
    if job == "b":
        model.register_comm_hook(None, EightBit())
    return model


def follow(instance: Instance, plan: Plan, meet: str | None, steps: dict[str, int]) -> Any:
    """Train jobs ``a``, with ranks 0 and 1, and ``b``, with ranks 2 and 3, as the plan says, and then without it."""
    rank = dist.get_rank()
    groups = {"a": dist.new_group([0, 1]), "b": dist.new_group([2, 3])}
    job = "a" if rank < 2 else "b"
    clock = ReplayClock(dist.new_group(backend="gloo"))
    with noted(clock) as moments, following(plan, instance, job, process_group=groups[job], meet=meet) as part:
        model = weighted(job, rank, PartialBackprop(network(), CUTS, levels=part, process_group=groups[job]))
        losses = train(job, model, steps[job])
    free = weighted(job, rank, PartialBackprop(network(), CUTS, levels=part, process_group=groups[job]))
    assert losses == train(job, free, steps[job])
    return moments, losses, part.gpus[rank % 2]


def problem(jobs: int = 2, workers: int = 2) -> tuple[Instance, Plan]:
    whole = instance()
    own = tuple(replace(job, workers=workers) for job in whole.jobs[:jobs])
    found = replace(whole, jobs=own)
    plan = solve(found, "greedy", Options(seed=0)).plan
    assert plan is not None
    return found, plan


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize(("has_address", "steps"), [(False, {"a": 6, "b": 6}), (True, {"a": 3, "b": 6})])
def test_blocks_and_transfers_take_turns_as_planned(has_address: bool, steps: dict[str, int]) -> None:
    given, plan = problem()
    meet = f"127.0.0.1:{free_port()}" if has_address else None
    found = run_group(follow, 4, given, plan, meet, steps)
    order = ReplayOrder(given, plan)
    for rank in range(2):
        on_gpu = {job: next(f for f in found[2 * job : 2 * job + 2] if f[2] == order.gpus[rank]) for job in (0, 1)}
        planned = [
            (step.job, step.iteration)
            for window in range(3)
            for step in order.steps(rank, window, ReplayExtent([0, 0], 3))
            if step.iteration < steps["ab"[step.job]]
        ]
        spans = [(on_gpu[j][0]["begin"][k], on_gpu[j][0]["end"][k]) for j, k in planned]
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), spans
    assert_links_serve_in_order(order, [moments["transfers"] for moments, *_ in found], steps)


def assert_links_serve_in_order(order: ReplayOrder, moments: list[dict[Any, Any]], steps: dict[str, int]) -> None:
    """Where the next transfer on the link of both jobs is of the other job, the one before has ended on both ranks."""
    keys = [TransferKey(job, k, d) for job, name in enumerate("ab") for k in range(steps[name]) for d in (1, 2, 3)]
    assert sum(map(len, moments)) == 2 * len(keys)
    keys.sort(key=lambda key: (order.transfer_start_us(key), key))
    spans = [[part[key[1:]] for part in moments[2 * key.job : 2 * key.job + 2]] for key in keys]
    changes = [at for at in range(1, len(keys)) if keys[at - 1].job != keys[at].job]
    assert len(changes) >= 4
    for at in changes:
        assert max(end for _, end in spans[at - 1]) <= min(begin for begin, _ in spans[at]), (keys[at], spans)


def test_a_worker_alone_takes_the_levels_of_the_plan() -> None:
    given, plan = problem(jobs=1, workers=1)
    with following(plan, given, "a") as part:
        model = PartialBackprop(network(), CUTS, levels=part)
        assert len(train("a", model, 3)) == 3
    assert model.iteration == 3


def behind(store: HashStore, timeout: timedelta) -> tuple[module.PlanTurns, tuple[int, int], str]:
    """Turns of a worker that is not the first one on its GPU, and who is, by number and by name."""
    given, plan = problem()
    order = ReplayOrder(given, plan)
    one, other, *_ = order.steps(0, 0, ReplayExtent([0, 0], 1))
    assert one.job != other.job
    turns = module.PlanTurns(order, module._Place(other.job, other.place, 4), (store, False), timeout)
    return turns, (one.job, one.place), f"worker {one.place} of job '{'ab'[one.job]}' on {order.gpus[0]}"


def test_a_worker_that_was_killed_is_named_and_missed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOST_S", 0.3)
    monkeypatch.setattr(module, "_BEAT_S", 0.05)
    store = HashStore()
    turns, (job, worker), name = behind(store, timedelta(minutes=1))
    store.set(f"first {job} {worker}", "0")
    store.add(f"alive {job} {worker}", 3)
    with turns, pytest.raises(RunFailedError, match=re.escape(f"{name} ") + ".* 0.3 s$"):
        turns.begin_block(0)


def test_a_worker_that_never_comes_is_named() -> None:
    turns, _, name = behind(HashStore(), timedelta(seconds=0.2))
    with turns, pytest.raises(RunFailedError, match=re.escape(f"{name} ") + ".* 0.2 s$"):
        turns.begin_block(0)


def test_a_place_where_nobody_is_is_an_error_of_the_run() -> None:
    given, plan = problem(workers=1)
    last = plan.data_parallel[-1].name
    meet, soon = f"127.0.0.1:{free_port()}", timedelta(seconds=1)
    with (
        pytest.raises(RunFailedError, match=f"{meet} .*1 s"),
        following(plan, given, last, meet=meet, timeout=soon),
    ):
        pass


def test_a_second_model_or_an_iteration_behind_is_refused() -> None:
    given, plan = problem(jobs=1, workers=1)
    with following(plan, given, "a") as part:
        model = PartialBackprop(network(), CUTS, levels=part)
        train("a", model, 2)
        with misuse("wrong-order iteration"):
            train("a", PartialBackprop(network(), CUTS, levels=part), 1)
    with following(plan, given, "a"):
        train("a", model, 1)
    assert model.iteration == 3


def test_what_does_not_fit_the_plan_is_refused() -> None:
    given, plan = problem()
    alone, alone_plan = problem(jobs=2, workers=1)
    with misuse("unknown-name job"), following(plan, given, "c"):
        pass
    with misuse("mismatch workers"), following(plan, given, "a"):
        pass
    with misuse("missing-option meet"), following(alone_plan, alone, "a"):
        pass
    with misuse("malformed meet"), following(alone_plan, alone, "a", meet="here"):
        pass
    with pytest.raises(CheckFailedError), following(plan, alone, "a"):
        pass
    a, b = alone.data_parallel_jobs
    for exchange, told in ({"every": 1}, "missing-option meet"), ({"every": 2}, "unsupported instance"):
        several = replace(alone, jobs=(replace(a, depth=FullDepth(), exchange=JobExchange(**exchange)), b))
        several_plan = solve(several, "greedy").plan
        assert several_plan is not None
        with misuse(told), following(several_plan, several, "a"):
            pass
    with misuse("mismatch levels") as caught:
        PartialBackprop(network(), CUTS, levels=plan.data_parallel[0])
    assert "2 workers" in str(caught.value)
    with misuse("mismatch levels") as caught:
        PartialBackprop(network(), CUTS[:1], levels=alone_plan.data_parallel[0])
    assert " 3" in str(caught.value) and " 2" in str(caught.value)
    with misuse("not-together levels"):
        PartialBackprop(network(), CUTS, levels=alone_plan.data_parallel[0], warm_up=1)
