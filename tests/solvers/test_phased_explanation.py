"""Where the time of jobs of phased plans goes: a plan made by hand, and sums on plans that are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import save_instance, save_plan
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import Instance, Job, Plan
from jigsaw_opt.solvers.explanation.stretches import JobStretches, explain_phases
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve
from tests.checking.test_phased_plans import INSTANCE, decoded, document
from tests.refusals import carries
from tests.solvers.test_phased_solver import instance
from tests.views.test_views import embedded


def require_sums(job: JobStretches) -> None:
    at = 0
    for stretch in job.stretches:
        assert stretch.start_us == at < stretch.end_us
        at = stretch.end_us
        if stretch.within is not None:
            assert sum(stretch.within.time_us.values()) == stretch.within.period_us
            assert min(stretch.within.total_us.values()) >= 0
            assert sum(stretch.within.total_us.values()) == stretch.end_us - stretch.start_us
    assert at == job.end_us == sum(job.time_us.values())


def iterations(job: JobStretches) -> int:
    return sum(
        stretch.within.iterations * stretch.within.repeats for stretch in job.stretches if stretch.within is not None
    )


def require_all(asked: Instance, plan: Plan) -> list[JobStretches]:
    found = explain_phases(asked, plan)
    for job, own in zip(asked.jobs, found, strict=True):
        require_sums(own)
        assert (own.job, iterations(own)) == (job.name, job.iterations)
    return found


def test_a_plan_by_hand() -> None:
    pair, free, lone, pipe, tail = require_all(INSTANCE, decoded(document()))
    assert pair.time_us == {"release": 3, "before": 0, "phase": 57 + 76, "seam": 96}
    assert [stretch.held_by for stretch in pair.stretches if stretch.kind == "seam"] == [
        {"x/0": ("free",), "y/0": ("free", "lone")}
    ]
    assert free.stretches[0].held_by == {"x/0": ("pair",), "y/0": ("pair", "lone")}
    assert (free.stretches[0].end_us, free.end_us) == (80, 156)
    assert [stretch.within.others for stretch in lone.stretches if stretch.within] == [("pair",), ("free",)]
    # Its one block of 10 us begins 25 us after each repetition does, whose period is 19 us.
    assert (lone.stretches[1].start_us, lone.stretches[1].end_us) == (3, 3 + 2 * 19 + 35)
    within = lone.stretches[1].within
    assert within is not None and (within.time_us["compute"], within.total_us["compute"]) >= (10, 30)
    assert [stretch.kind for stretch in pipe.stretches] == ["phase", "seam", "phase"]
    assert tail.stretches[0].held_by == {"z/0": ("pipe",)} and tail.time_us["before"] == 50


def test_sums_on_a_plan_that_is_made() -> None:
    asked = instance(Job("a", "net", 4, 10), Job("b", "net", 4, 6, release_us=70))
    plan = solve(asked, "phased", Options(threads=1)).plan
    assert plan is not None
    found = require_all(asked, plan)
    assert explain_phases(asked, plan, "b") == [found[1]]


def test_the_command_on_a_phased_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, files = decoded(document()), [str(tmp_path / "i.json"), str(tmp_path / "p.json")]
    save_instance(INSTANCE, files[0])
    save_plan(plan, files[1])
    assert main(["explain", *files]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["job", "end", "us"] and len(lines) == len(INSTANCE.jobs)
    (tail,) = (line for line in lines if line.startswith("tail"))
    assert tail.split()[:3] == ["tail", "80", "1"] and carries(tail, "waits", "z/0")
    assert main(["explain", *files, "tail"]) == 0
    printed = capsys.readouterr().out
    assert carries(printed, "80 us", "begin", "0 us")
    assert carries(printed, "waits", "z/0")
    assert carries(printed, "1", "1", "3 x", "10 us", "1 iteration", "compute", "30")
    assert main(["explain", *files, "pair", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [job["job"] for job in told["jobs"]] == ["pair"]
    totals = [each["within"]["total_us"] for each in told["jobs"][0]["stretches"] if each["within"]]
    assert [sum(total.values()) for total in totals] == [57, 76]
    assert main(["explain", *files, "pair", "-o", str(tmp_path / "page.html")]) == 0
    pages: Any = [phase["page"] for phase in embedded((tmp_path / "page.html").read_text())["phases"]]  # type: ignore[attr-defined]
    chosen = [None if page["chosen"] is None else page["jobs"][page["chosen"]]["name"] for page in pages]
    in_phases = [any(job.name == "pair" for job in phase.jobs) for _, _, phase in plan.all_phases()]
    assert [name == "pair" for name in chosen] == in_phases and any(in_phases)
    assert main(["explain", *files, "nobody"]) == 2
    with pytest.raises(UsageError, match="nobody"):
        explain_phases(INSTANCE, plan, "nobody")
