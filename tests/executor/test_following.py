"""Loops of one's own that follow a plan: turns on GPUs, equal results, and errors."""

from __future__ import annotations

import re
import socket
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from dataclasses import replace  # noqa: E402
from datetime import timedelta  # noqa: E402

from followed import CUTS, follow, network, train  # noqa: E402
from replayed import instance  # noqa: E402

import jigsaw_opt.executor.following as module  # noqa: E402
from jigsaw_opt.errors import CheckFailedError, RunFailedError  # noqa: E402
from jigsaw_opt.executor.following import following  # noqa: E402
from jigsaw_opt.executor.partial import PartialBackprop  # noqa: E402
from jigsaw_opt.executor.processes import run_group  # noqa: E402
from jigsaw_opt.executor.replay.link_order import HashStore  # noqa: E402
from jigsaw_opt.executor.replay.order import ReplayExtent, ReplayOrder, TransferKey  # noqa: E402
from jigsaw_opt.problem import Instance, Plan  # noqa: E402
from jigsaw_opt.solvers.options import Options  # noqa: E402
from jigsaw_opt.solvers.solve import solve  # noqa: E402
from tests.refusals import misuse  # noqa: E402


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
@pytest.mark.parametrize("has_address", [False, True])
@pytest.mark.parametrize("steps", [{"a": 6, "b": 6}, {"a": 3, "b": 6}])
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
    turns = module.PlanTurns(order, module._Place(other.job, other.slot, 4), (store, False), timeout)
    return turns, (one.job, one.slot), f"worker {one.slot} of job '{'ab'[one.job]}' on {order.gpus[0]}"


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
    with misuse("mismatch levels") as caught:
        PartialBackprop(network(), CUTS, levels=plan.data_parallel[0])
    assert "2 workers" in str(caught.value)
    with misuse("mismatch levels") as caught:
        PartialBackprop(network(), CUTS[:1], levels=alone_plan.data_parallel[0])
    assert " 3" in str(caught.value) and " 2" in str(caught.value)
    with misuse("not-together levels"):
        PartialBackprop(network(), CUTS, levels=alone_plan.data_parallel[0], warm_up=1)
