"""A phased plan whose jobs pause and move, carried out: they train as they would in one place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from replayed import instance, run
from test_own_trainings import CUTS
from test_phased_replay import SMALL, levels_of, placed, trained_alone, written

from jigsaw_opt.checking import check
from jigsaw_opt.documents import encode_instance, instance_sha256, load_document, schema
from jigsaw_opt.documents.replay import encode_replay
from jigsaw_opt.errors import RunFailedError
from jigsaw_opt.executor.replay import residents
from jigsaw_opt.executor.replay.evaluation import replay_of
from jigsaw_opt.executor.schedules.records import Part, RankReport, RunRecord
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.problem import Block, Instance, Iteration, JobPlan, Phase, PhaseGroup, Plan
from jigsaw_opt.problem.measured.replay import Replay

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
    output = tmp_path / "replay.json"
    command = written(tmp_path, asked, plan)
    assert run(*command, "--warm-up", 1, "--json", "-o", output) == 0
    told = json.loads(capsys.readouterr().out)
    for number, each in enumerate(asked.data_parallel):
        expected = trained_alone(asked, number, levels_of(plan, each.name, 10))
        assert told["parameters_sha256"][each.name] == [expected] * each.workers
    restarts = [[(restart["job"], restart["restart_us"]) for restart in phase["restarts"]] for phase in told["phases"]]
    assert restarts == [[], [("moves", RESTART_US), ("swaps", 0)], [("rests", RESTART_US)]]
    assert all(restart["measured_us"] >= phase["seam_us"] for phase in told["phases"] for restart in phase["restarts"])
    jsonschema.validate(json.loads(output.read_text()), schema("phased-replay"))
    replay = load_document(output)
    assert isinstance(replay, Replay) and replay.phases[1].restarts and encode_replay(replay) == output.read_bytes()
    assert run(*command, "--warm-up", 0, "--iterations", 1) == 0
    assert "away us" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_goes_on_over_a_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From an iteration that the other GPU has saved."""
    folder = tmp_path / "checkpoint"
    asked = instance(jobs=JOBS)
    command = [*written(tmp_path, asked, by_hand(asked)), "--warm-up", 0, "--json", "--checkpoint", folder]
    command += ["--checkpoint-every", 1]
    assert run(*command) == 0
    whole = json.loads(capsys.readouterr().out)
    for path in folder.glob("job*-iteration5.pt"):
        path.unlink()
    assert run(*command, "--resume") == 0
    rest = json.loads(capsys.readouterr().out)
    assert rest["parameters_sha256"] == whole["parameters_sha256"]
    assert rest["phases"][0]["period"] is None and rest["phases"][1]["period"] is not None
    assert rest["phases"][1]["restarts"] == [], "the earlier run has measured when they left"


@pytest.mark.slow
def test_a_training_of_your_own_takes_its_data_and_generators_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = json.loads(encode_instance(instance()))["models"]["net"]
    net["executor"] = {"train": "own_trainings:noisy", "arguments": {}, "cuts": CUTS["noisy"]}
    asked = instance(jobs=JOBS, models={"net": net})
    (group,) = by_hand(asked).groups
    places = {placed.name: placed.gpus for placed in group.phases[0].jobs}
    found = []
    for changes in ({}, places):
        jobs = [
            tuple(replace(job, gpus=changes.get(job.name, job.gpus)) for job in phase.jobs) for phase in group.phases
        ]
        phases = tuple(replace(phase, jobs=own) for phase, own in zip(group.phases, jobs, strict=True))
        plan = replace(by_hand(asked), groups=(PhaseGroup(phases),))
        assert run(*written(tmp_path, asked, plan), "--trust", "own_trainings:noisy", "--warm-up", 1, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["parameters_sha256"])
    assert found[0] == found[1] and set(found[0]) == set(places)


def test_no_room_for_a_state_is_told_with_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(residents, "TemporaryFile", full)
    worker = SimpleNamespace(number=1, state=dict)
    with pytest.raises(RunFailedError, match=r"job a, worker 1: .*\[Errno 28\]"):
        residents.AbsentWorkers(None).put(SimpleNamespace(job=0, name="a", worker=worker))  # type: ignore[arg-type]


def part_of(begin_us: int, *starts_us: tuple[int, list[int]]) -> Part:
    """What a process did in a phase: blocks of 2000 us, by number of their job in the phase."""
    blocks = [
        RunRecord("block", k, n, 0, at, at + 2000, 3, 0.5) for k, starts in starts_us for n, at in enumerate(starts)
    ]
    return Part(blocks, [], begin_us)


def test_ends_count_restarts_and_who_is_away_takes_no_memory() -> None:
    restart_us = 10_000
    asked = instance(jobs=[job("moves", 1, 3, restart_us), job("rests", 1, 4, restart_us)])
    both = Phase(0, 4800, 2, (single("moves", HOSTS[0], 2400), single("rests", HOSTS[1], 4800)))
    other = Phase(7200 + restart_us, 2400, 1, (single("moves", HOSTS[1], 2400),))
    last = Phase(9600 + restart_us, 2400, 2, (single("rests", HOSTS[1], 2400),))
    plan = Plan(asked.name, instance_sha256(asked), "feasible", last.end_us, 0, (PhaseGroup((both, other, last)),))
    assert list(check(asked, plan)) == []
    here = [part_of(1_000_000, (0, [0, 3000])), part_of(2_000_000), part_of(3_000_000)]
    there = [
        part_of(1_000_000, (1, [1000, 5000])),
        part_of(2_000_000, (0, [0])),
        part_of(3_000_000, (0, [0, 2500])),
    ]
    reports = [RankReport(here, {}, 1, [0, 0]), RankReport(there, {(0, 0): "", (1, 0): ""}, 1, [0, 0])]
    found = replay_of(ReplayRequest(asked, plan, passes=2), None, None, reports, {})
    assert found is not None
    away = [[(restart.job, restart.measured_us) for restart in phase.restarts] for phase in found.phases]
    assert away == [[], [("moves", 995_000)], [("rests", 1_993_000)]]
    spans = [(phase.measured_begin_us, phase.measured_end_us) for phase in found.phases]
    assert spans == [(0, 7000), (15_000, 17_000), (17_000, 21_500)]
    first, second = (gpu.planned_memory_bytes for gpu in found.gpus)
    assert first == second, "each holds one job at a time"
