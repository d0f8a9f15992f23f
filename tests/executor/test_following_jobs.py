"""Jobs that do not fit together in memory follow one another in a replay as in the plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from replayed import instance, run
from test_mixed_runs import mixed

from jigsaw_opt.checking import check
from jigsaw_opt.documents import (
    decode_instance,
    encode_instance,
    instance_sha256,
    load_replay,
    save_instance,
    save_plan,
    schema,
)
from jigsaw_opt.documents.replay import encode_replay
from jigsaw_opt.executor.schedules.presence import planned_bytes, seams
from jigsaw_opt.problem import Block, Instance, Iteration, JobPlan, Plan, Transfer
from jigsaw_opt.problem.measured.replay import Replay
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

HOSTS = ("h0/0", "h1/0")
LEVEL_US = (0, 1400, 1900, 2400)
PARAMETERS = 4 * (65 * 64 + 65 * 64 + 65 * 10)
ONE = 4 * PARAMETERS + 3 * 4096
"""What a job of the instance needs on a GPU."""


def problem(memory: int, *workers: int, **changes: Any) -> Instance:
    """Two hosts with so much memory, and jobs of two iterations and one or two workers each."""
    base = json.loads(encode_instance(instance()))
    for server in base["cluster"]["servers"]:
        server["gpu_memory"] = memory
    jobs = [
        {"name": f"j{k}", "model": "net", "depth": {"rule": "full"}, "workers": count, "iterations": 2}
        for k, count in enumerate(workers)
    ]
    return instance(cluster=base["cluster"], **{"jobs": jobs, **changes})


def planned(name: str, gpus: Sequence[str], start_us: int, iterations: int = 2) -> JobPlan:
    """A job of the instance at full depth, from a moment on."""
    rows = []
    for _ in range(iterations):
        blocks = tuple(Block(3, start_us, start_us + 2400) for _ in gpus)
        free, moved = 0, []
        for bucket, length in ((1, 103), (2, 117), (3, 117)) if len(gpus) > 1 else ():
            begin = max(free, start_us + LEVEL_US[bucket])
            free = begin + length
            moved.append(Transfer(bucket, begin, free))
        rows.append(Iteration(blocks, tuple(moved)))
        start_us = max(free, start_us + 2400)
    return JobPlan(name, tuple(gpus), tuple(rows))


def plan_of(asked: Instance, *jobs: JobPlan) -> Plan:
    plan = Plan.of_jobs(
        instance=asked.name,
        instance_sha256=instance_sha256(asked),
        status="feasible",
        objective=max(job.end_us for job in jobs),
        bound=0,
        period_us=None,
        jobs=jobs,
        solver={"name": "by hand"},
    )
    assert list(check(asked, plan)) == []
    return plan


def chain(asked: Instance, *gpus: Sequence[str]) -> Plan:
    """Jobs on these GPUs, one behind the other."""
    jobs: list[JobPlan] = []
    for number, own in enumerate(gpus):
        jobs.append(planned(f"j{number}", own, max((job.end_us for job in jobs), default=0)))
    return plan_of(asked, *jobs)


def replayed(folder: Path, asked: Instance, plan: Plan, *options: object) -> Replay:
    folder.mkdir(exist_ok=True)
    save_instance(asked, folder / "instance.json")
    save_plan(plan, folder / "plan.json")
    output = folder / "replay.json"
    assert run("run", folder / "instance.json", folder / "plan.json", "-o", output, *options) == 0
    return load_replay(output)


MIXED = (HOSTS, HOSTS[:1], HOSTS[::-1], HOSTS[1:])


@pytest.mark.slow
def test_jobs_train_as_they_do_where_all_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when the plan is repeated, so that each goes on after others had its memory."""
    scarce, ample = (problem(memory, *map(len, MIXED)) for memory in (ONE, 10 * ONE))
    found = [
        replayed(tmp_path / str(k), asked, chain(asked, *MIXED), "--iterations", 2, "--warm-up", 1)
        for k, asked in enumerate((scarce, ample))
    ]
    assert found[0].parameters_sha256 == found[1].parameters_sha256
    assert all(len(set(own)) == 1 for own in found[0].parameters_sha256.values())
    assert len(set(found[0].parameters_sha256.values())) == 4
    assert found[0].building_us > 0 == found[1].building_us
    for few, all_ in zip(found[0].gpus, found[1].gpus, strict=True):
        assert few.memory_bytes < few.planned_memory_bytes == all_.planned_memory_bytes == ONE
        assert all_.memory_bytes > 2 * few.memory_bytes
    assert f"took {found[0].building_us} us" in capsys.readouterr().out
    document = tmp_path / "0" / "replay.json"
    jsonschema.validate(json.loads(document.read_text()), schema("replay"))
    assert encode_replay(load_replay(document)) == document.read_bytes()


def test_no_time_has_the_building_in_it(tmp_path: Path) -> None:
    """A job beside the others on another GPU, the first of which begins while it runs, is not slowed down."""
    asked = problem(ONE, 1, 1, 1, 1)
    plan = plan_of(
        asked,
        *(planned(f"j{k}", HOSTS[:1], k * 4800) for k in range(3)),
        planned("j3", HOSTS[1:], 0),
    )
    found = replayed(tmp_path, asked, plan, "--time-triggered")
    for job, measured in zip(plan.jobs, found.timeline.jobs, strict=True):
        operations = [
            (b.start_us, m.start_us, m.end_us)
            for row, times in zip(job.iterations, measured.iterations, strict=True)
            for b, m in zip(row.blocks, times.blocks, strict=True)
        ]
        assert all(planned_us <= start_us < end_us for planned_us, start_us, end_us in operations)
        assert all(before[2] <= after[1] for before, after in pairwise(operations))
    measured_us = found.summary.measured_us
    assert measured_us is not None and plan.objective <= measured_us + 2400 and found.building_us > 0


@pytest.mark.slow
def test_a_run_goes_on_where_jobs_had_been_let_go(tmp_path: Path) -> None:
    asked = problem(ONE, *map(len, MIXED))
    plan = chain(asked, *MIXED)
    folder = tmp_path / "checkpoint"
    options = "--warm-up", 0, "--checkpoint", folder
    whole = replayed(tmp_path, asked, plan, "--warm-up", 0, "--iterations", 2)
    replayed(tmp_path, asked, plan, *options, "--iterations", 1)
    for path in folder.glob("job2-*.pt"):
        path.unlink()
    rest = replayed(tmp_path, asked, plan, *options, "--iterations", 2, "--resume")
    assert rest.parameters_sha256 == whole.parameters_sha256
    assert [job.first_iteration for job in rest.timeline.jobs] == [2, 2, 0, 2]


def test_a_job_is_built_once_what_is_in_its_way_has_ended() -> None:
    asked = problem(2 * ONE, 1, 1, 1, 1)
    plan = plan_of(
        asked,
        planned("j0", HOSTS[:1], 0),
        planned("j1", HOSTS[:1], 4800),
        planned("j2", HOSTS[:1], 9600),
        planned("j3", HOSTS[1:], 2000),
    )
    first, second = seams(asked, plan)
    assert (first.start_us, set(first.jobs)) == (0, {0, 1, 3}), "two fit, and what is elsewhere"
    assert (second.start_us, set(second.jobs)) == (4800, {1, 2, 3}), "at the end of the first, not at its own start"
    assert [planned_bytes(asked, plan, gpu) for gpu in HOSTS] == [ONE, ONE]
    wide = problem(10 * ONE, 1, 1, 1, 1)
    assert [set(seam.jobs) for seam in seams(wide, replace(plan, instance_sha256=instance_sha256(wide)))] == [
        {0, 1, 2, 3}
    ]


@pytest.mark.slow
def test_a_job_is_built_amid_an_iteration_of_a_pipeline(tmp_path: Path) -> None:
    base = json.loads(encode_instance(mixed(2)))
    server, (_, piece, pipe) = base["cluster"]["servers"][0], base["jobs"]
    releases = (2000, 2500, 4000)
    jobs = [{**piece, "name": f"j{k}", "release_us": release} for k, release in enumerate(releases)]
    base |= {"horizon": "finite", "objective": "makespan", "jobs": [*jobs, {**pipe, "iterations": 2}]}
    found, plan = [], None
    for memory in (ONE, 3 * ONE):
        server["gpu_memory"] = memory
        asked = decode_instance(json.dumps(base))
        plan = plan or solve(asked, "greedy", Options(work_limit=0.2, threads=1, seed=0)).plan
        assert plan is not None
        plan = replace(plan, instance_sha256=instance_sha256(asked))
        options = ("--trust", "piped:net", "--iterations", 2, "--warm-up", 1)
        found.append(replayed(tmp_path / str(memory), asked, plan, *options))
        step = plan.jobs[-1].iterations[0].blocks
        inside = [seam.start_us for seam in seams(asked, plan)[1:]]
        assert len(inside) == (1 if memory == ONE else 0)
        assert all(min(b.start_us for b in step) < at < max(b.end_us for b in step) for at in inside)
    assert found[0].parameters_sha256 == found[1].parameters_sha256
    assert found[0].building_us > 0 == found[1].building_us
