"""A phased plan whose jobs pause and move, carried out: they train as they would in one place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs PyTorch: pip install 'jigsaw-opt[torch]'")

from replayed import instance, run  # noqa: E402
from test_phased_replay import SMALL, levels_of, placed, trained_alone, written  # noqa: E402

from jigsaw_opt.checking import check  # noqa: E402
from jigsaw_opt.documents import instance_sha256  # noqa: E402
from jigsaw_opt.problem import Block, Instance, Iteration, JobPlan, Phase, PhaseGroup, Plan  # noqa: E402

HOSTS = ("h0/0", "h1/0")
RESTART_US = 100


def job(name: str, workers: int, iterations: int, restart_us: int | None) -> dict[str, Any]:
    restart = {} if restart_us is None else {"restart_us": restart_us}
    return {"name": name, **SMALL, "workers": workers, "iterations": iterations, **restart}


JOBS = [
    job("moves", 1, 5, RESTART_US),
    job("swaps", 2, 5, 0),
    job("pauses", 1, 4, None),
    job("rests", 1, 4, RESTART_US),
]


def single(name: str, gpu: str, end_us: int) -> JobPlan:
    """A job of one worker whose block ends at a moment."""
    return JobPlan(name, (gpu,), (Iteration((Block(3, end_us - 2400, end_us),), ()),))


def by_hand(asked: Instance) -> Plan:
    """All jobs; then one on the other GPU and one with its workers swapped; then those that were absent meanwhile."""
    swaps = placed("swaps", (3, 7200), (2, 7200))
    first = Phase(0, 8000, 2, (single("moves", HOSTS[0], 2400), swaps, single("pauses", HOSTS[1], 2400)))
    first = replace(first, jobs=(*first.jobs, single("rests", HOSTS[0], 4800)))
    swapped = replace(placed("swaps", (2, 4800), (3, 4800)), gpus=HOSTS[::-1])
    second = Phase(first.end_us, 5500, 3, (single("moves", HOSTS[1], 2400), swapped))
    third = Phase(second.end_us, 2400, 2, (single("pauses", HOSTS[1], 2400), single("rests", HOSTS[0], 2400)))
    phases = PhaseGroup((first, second, third))
    return Plan(asked.name, instance_sha256(asked), "feasible", third.end_us, 0, (phases,))


def test_jobs_that_pause_and_move_train_as_in_one_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = instance(jobs=JOBS)
    plan = by_hand(asked)
    assert list(check(asked, plan)) == [] and plan.moved == ("moves", "swaps")
    assert run(*written(tmp_path, asked, plan), "--warm-up", 1, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    for number, it in enumerate(asked.data_parallel):
        expected = trained_alone(asked, number, levels_of(plan, it.name, 10))
        assert told["parameters_sha256"][it.name] == [expected] * it.workers
