"""Records of best known values: only better ones are kept, and contradictions are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import load_plan
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.instances import load
from jigsaw_opt.instances.catalogue import BestKnown, read_best_known
from jigsaw_opt.instances.record import merge, record
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy

INSTANCE = load("tiny/000")
OLD = merge(None, INSTANCE, Result(Status.FEASIBLE, StoppedBy.TIME, 900, 500, None, solver="old"))


def _run(objective: int | None, bound: int) -> Result:
    status = Status.UNKNOWN if objective is None else Status.FEASIBLE
    return Result(status, StoppedBy.TIME, objective, bound, None, solver="new")


@pytest.mark.parametrize(
    ("objective", "bound", "kept"),
    [
        (800, 600, (800, 600, "new")),
        (950, 600, (900, 600, "new")),
        (800, 400, (800, 500, "new")),
        (950, 400, (900, 500, "old")),
        (None, 700, (900, 700, "new")),
        (None, 500, (900, 500, "old")),
    ],
)
def test_the_better_objective_and_the_better_bound_are_kept(
    objective: int | None, bound: int, kept: tuple[int, int, str]
) -> None:
    best = merge(OLD, INSTANCE, _run(objective, bound))
    assert (best.objective, best.bound, best.solver) == kept


def test_a_record_is_optimal_only_when_both_values_meet() -> None:
    assert not OLD.optimal
    assert merge(OLD, INSTANCE, _run(700, 700)).optimal


def test_values_of_another_instance_are_dropped() -> None:
    stale = replace(OLD, instance_sha256="0" * 64)
    assert merge(stale, INSTANCE, _run(1000, 100)).objective == 1000


def test_runs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(JigsawError, match="disagree"):
        merge(OLD, INSTANCE, _run(None, 901))


def test_recording_writes_the_solved_instances_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "best_known.json"
    record(["tiny/000"], "greedy", Options(threads=1), path)
    first = read_best_known(path)
    record(["tiny/001"], "greedy", Options(threads=1), path)
    both = read_best_known(path)
    assert list(first) == ["tiny/000"]
    assert list(both) == ["tiny/000", "tiny/001"]
    assert both["tiny/000"] == first["tiny/000"]
    assert isinstance(both["tiny/001"], BestKnown)
    assert both["tiny/001"].objective is not None


def test_plans_as_good_as_the_best_known_are_kept(tmp_path: Path) -> None:
    path, plans = tmp_path / "best_known.json", tmp_path / "plans"
    record(["tiny/000"], "greedy", Options(threads=1), path, plans)
    kept = load_plan(plans / "tiny-000.json")
    assert check(INSTANCE, kept) == ()
    found = read_best_known(path)["tiny/000"]
    assert found.objective is not None
    path.write_text(path.read_text().replace(f'"objective": {found.objective}', f'"objective": {found.objective - 1}'))
    record(["tiny/000"], "greedy", Options(threads=1), path, tmp_path / "worse")
    assert not (tmp_path / "worse").exists()


def test_instances_that_a_solver_does_not_take_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "best_known.json"
    record(["shop/job-6x4", "tiny/000"], "ilp", Options(threads=1), path)
    assert list(read_best_known(path)) == ["tiny/000"]
