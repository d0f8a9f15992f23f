"""``jigsaw shifts``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_instance, save_instance
from jigsaw_opt.problem.job import Job
from tests.planning.test_shifts import small_instance
from tests.refusals import ends

LIMITS = ["--work-limit", "20", "--time-limit", "300", "--threads", "1", "--most", "2"]


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    one_a_server = small_instance()
    jobs = tuple(Job(name, "net", 3 if name == "a" else 1, 1) for name in "ab")
    save_instance(replace(one_a_server, jobs=jobs), path)
    return path


def test_plans_in_turn_are_written_and_right(
    document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best, plan = tmp_path / "best.json", tmp_path / "plan.json"
    written = ["-o", str(best), "--best-plan", str(plan), "--json"]
    assert main(["shifts", str(document), *LIMITS, *written]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [job["job"] for job in told["jobs"]] == ["a", "b"]
    assert told["links"] == [] and told["mean_compatibility"] == {"unshifted": 1.0, "shifted": 1.0, "bound": 1.0}
    # Nothing is shared, so sharing slows nobody; the period is that of the longer job.
    assert all(job["shifted_us"] == job["fair_us"] == job["alone_us"] for job in told["jobs"])
    assert told["ratios"]["slowdown"] <= told["common_period"]["slowdown"]
    assert [job.iterations for job in load_instance(best).jobs] == [job["ratio"] for job in told["jobs"]]
    assert main(["check", str(best), str(plan)]) == 0
    assert main(["shifts", str(document), "--plan", str(plan), *LIMITS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["placements"] == 1


def test_shared_links_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = tmp_path / "small.json", tmp_path / "plan.json"
    save_instance(replace(small_instance(), jobs=tuple(Job(name, "net", 2, 1) for name in "ab")), path)
    assert main(["solve", str(path), *LIMITS[:-2], "-o", str(plan), "-q"]) == 0
    capsys.readouterr()
    assert main(["shifts", str(path), *LIMITS, "--placements", "2"]) == 0
    told = capsys.readouterr().out
    assert "mean compatibility" in told and "common period" in told


def test_what_makes_no_sense_is_named(document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--most", 0), ("--placements", -1)):
        ends(f"2: out-of-range {option[2:]}", "shifts", document, option, value)
    path = tmp_path / "finite.json"
    save_instance(replace(small_instance(), horizon="finite", objective="makespan"), path)
    assert main(["shifts", str(path)]) == 3
    assert "finite horizon" in capsys.readouterr().err
