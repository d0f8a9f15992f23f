"""The arithmetic of the summary, on rows made by hand."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from jigsaw_opt.sweeps.bench.summary import COLUMNS, certified_gap, csv_table, geometric_mean, profiles, summary


def row(instance: str, solver: str, seed: int, objective: int | None, bound: int, **changes: Any) -> dict[str, Any]:
    """A row of set ``s`` and a limit of 10 s, whose only plan was found after ``at`` seconds."""
    at = changes.pop("at", 1.0)
    made = {
        "key": f"{instance} {solver} {seed}",
        "set": "s",
        "instance": instance,
        "instance_sha256": f"sha-{instance}",
        "solver": solver,
        "seed": seed,
        "time_limit": 10.0,
        "error": None,
        "status": "unknown" if objective is None else "optimal" if objective == bound else "feasible",
        "objective": objective,
        "bound": bound,
        "gap": None if objective is None else (objective - bound) / objective,
        "trajectory": [[0.0, None, bound]] + [[at, objective, bound]] * (objective is not None),
    }
    return {**made, **changes}


def failed(instance: str, solver: str, seed: int) -> dict[str, Any]:
    labels = ("key", "set", "instance", "instance_sha256", "solver", "seed", "time_limit")
    return {**{name: row(instance, solver, seed, None, 0)[name] for name in labels}, "error": "killed"}


def test_gaps_are_medians_over_seeds_then_mean_and_worst_over_instances() -> None:
    rows = [row("a", "x", seed, 100, bound) for seed, bound in enumerate((99, 90, 100))]
    rows += [row("b", "x", seed, 100, bound) for seed, bound in enumerate((95, 97))]
    (cell,) = summary(rows)
    assert (cell.instances, cell.runs, cell.with_plan, cell.proven, cell.errors) == (2, 5, 5, 1, 0)
    assert cell.mean_gap == pytest.approx((0.01 + 0.04) / 2)
    assert cell.worst_gap == pytest.approx(0.04)


def test_the_integral_is_a_mean_of_medians_and_a_failure_counts_its_limit() -> None:
    rows = [row("a", "x", seed, 100, 90, primal_dual_integral=value) for seed, value in enumerate((1.0, 3.0, 2.0))]
    (cell,) = summary([*rows, failed("b", "x", 0)])
    assert cell.primal_dual_integral == pytest.approx((2.0 + 10.0) / 2)
    (unknown,) = summary([row("a", "x", 0, 100, 90)])
    assert unknown.primal_dual_integral is None


def test_objective_ratios_are_to_the_best_of_all_solvers() -> None:
    rows = [row("a", "x", 0, 200, 50), row("b", "x", 0, 100, 50), row("a", "y", 0, 100, 50), row("b", "y", 0, 800, 50)]
    x, y = summary(rows)
    assert (x.solver, y.solver) == ("x", "y")
    assert x.objective_ratio == pytest.approx(2**0.5)
    assert y.objective_ratio == pytest.approx(8**0.5)


def test_runs_without_a_plan_count_in_the_gap_and_not_in_the_ratios() -> None:
    rows = [row("a", "x", 0, 100, 100), row("b", "x", 0, None, 50), failed("c", "x", 0), row("b", "y", 0, 60, 50)]
    x, y = summary(rows)
    assert (x.instances, x.with_plan, x.proven, x.errors) == (3, 1, 1, 1)
    assert x.mean_gap == pytest.approx(2 / 3) and x.worst_gap == 1.0
    assert x.objective_ratio == 1.0
    assert y.time_ratio is None, "nobody raced it"


def test_a_solver_that_never_has_a_plan_has_no_ratio() -> None:
    (cell,) = summary([failed("a", "x", 0), row("a", "x", 1, None, 5)])
    assert (cell.objective_ratio, cell.seconds_to_objective, cell.time_ratio) == (None, None, None)


def test_time_ratios_are_to_the_worst_of_the_final_objectives() -> None:
    slow = row("a", "x", 0, 100, 50, at=8.0)
    fast = row("a", "y", 0, 90, 50, trajectory=[[2.0, 100, 50], [9.0, 90, 50]])
    x, y = summary([slow, fast])
    assert (x.time_ratio, y.time_ratio) == (4.0, 1.0)
    assert (x.seconds_to_objective, y.seconds_to_objective) == (pytest.approx(8.0), pytest.approx(9.0))


def test_limits_and_sets_are_cells_of_their_own() -> None:
    rows = [row("a", "x", 0, 9, 9), row("a", "x", 0, 9, 9, time_limit=60.0, key="k"), row("b", "x", 0, 9, 9, set="t")]
    assert [(c.set, c.time_limit) for c in summary(rows)] == [("s", 10.0), ("s", 60.0), ("t", 10.0)]


def test_a_proof_that_there_is_no_plan_is_no_gap() -> None:
    proven = row("a", "x", 0, None, 5, status="infeasible")
    assert certified_gap(proven) == 0.0
    assert summary([proven])[0].proven == 1


def test_profiles_hold_every_run() -> None:
    rows = [row("a", "x", 0, 100, 50), row("b", "x", 0, 100, 99), failed("c", "x", 0), row("a", "y", 0, 5, 5)]
    assert profiles(rows) == {"x 10 s": [0.01, 0.5, 1.0], "y 10 s": [0.0]}


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert geometric_mean([2.0, float("inf")]) == pytest.approx(2.0)
    assert geometric_mean([]) is None


def test_csv_has_every_column_and_reads_back() -> None:
    rows = [row("a,1", "x", 0, 100, 50, versions={"python": "3.11", "ortools": "9.15"}), failed("b", "x", 0)]
    first, second = csv.DictReader(io.StringIO(csv_table(rows)))
    assert tuple(first) == COLUMNS
    assert (first["instance"], first["objective"], first["versions"]) == ("a,1", "100", "python 3.11; ortools 9.15")
    assert (second["objective"], second["error"]) == ("", "killed")
