"""Long instances get a phased plan without being asked for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jigsaw_opt.cli import main
from jigsaw_opt.documents import load_plan, save_instance
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server
from jigsaw_opt.solvers.portfolio import auto


def one_server(memory: int, *jobs: Job) -> Instance:
    model = Model((Segment("l", {"v": 3}, {"v": 4}, 5, 6),))
    return Instance("long", Cluster((Server("s", "v", 2, memory, 10**6),)), {"net": model}, jobs, "finite", "makespan")


def test_jobs_that_only_run_in_turn_get_a_phased_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three jobs with little memory fit into two GPUs only in turn; a plan that lists iterations keeps all of them."""
    monkeypatch.setattr(auto, "_MANY_OPERATIONS", 0)
    path, plan = tmp_path / "i.json", tmp_path / "p.json"
    save_instance(one_server(30, *(Job(name, "net", 1, 3) for name in "abc")), path)
    assert main(["solve", str(path), "--json", "--seed", "3", "--threads", "2", "-o", str(plan)]) == 0
    told, made = json.loads(capsys.readouterr().out), load_plan(plan)
    assert (told["solver"], told["seed"], told["threads"]) == ("phased", 3, 2)
    assert made.is_phased and (made.solver["seed"], made.solver["threads"]) == (3, 2)
    assert main(["check", str(path), str(plan)]) == 0


CASE = Path(__file__).parents[1] / "data" / "cases" / "robust" / "phased-small-memory.json"


@pytest.mark.parametrize("more", ["--time-limit 20", "--solver cpsat", "--work-limit 5", "--solver phased"])
def test_short_jobs_that_do_not_fit_together_follow_one_another(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "p.json"
    assert main(["solve", str(CASE), "--threads", "1", "-q", "--json", "-o", str(plan), *more.split()]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["objective"] == 56
    assert found["status"] == ("feasible" if more == "--solver phased" else "optimal")
    assert main(["check", str(CASE), str(plan)]) == 0
