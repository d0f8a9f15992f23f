"""The tasks of a measurement, and the arithmetic of summaries and performance profiles, on rows made by hand."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from jigsaw_opt.documents import encode_instance, instance_sha256
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.sweeps.bench.summary import (
    COLUMNS,
    csv_table,
    geometric_mean,
    objective_profile,
    proven_gap,
    summary,
    time_profile,
)
from jigsaw_opt.sweeps.bench.trials import Design, Entry, measure, trials


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
    checked = [made | {"certified": made["seed"] > 0, "bound_by": "CP-SAT"} for made in rows]
    (cell,) = summary(checked)
    assert (cell.certified, cell.certified_optimal) == (3, 1)
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
    assert proven_gap(proven) == 0.0
    assert summary([proven])[0].proven == 1


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


def test_objectives_are_set_against_the_best_of_any_seed() -> None:
    rows = [row("a", "x", 0, 120, 50), row("a", "x", 1, 100, 50), row("a", "y", 0, None, 50), failed("b", "y", 0)]
    assert objective_profile(rows) == {"x 10 s": [pytest.approx(1.2), 1.0], "y 10 s": [inf, inf]}


def test_times_race_with_the_same_seed_to_within_a_share_of_the_best() -> None:
    steps = [[1.0, 120, 50], [2.0, 101, 50], [8.0, 100, 50]]
    slow = row("a", "x", 0, 100, 50, trajectory=steps)
    fast, never = row("a", "y", 0, 101, 50, at=0.5), row("a", "y", 1, 102, 50)
    assert time_profile([slow, fast, never], 0.01) == {"x 10 s": [4.0], "y 10 s": [1.0, inf]}
    # At 0 % only the best itself counts, which the other solver never has.
    assert time_profile([slow, fast], 0.0) == {"x 10 s": [1.0], "y 10 s": [inf]}
    assert time_profile([failed("b", "x", 0)], 0.01) == {"x 10 s": [inf]}


DESIGN = Design(("greedy", "cpsat"), (0, 1), (10.0, 60.0), threads=2)


def test_the_list_is_every_combination_in_a_fixed_order(pair: Instance) -> None:
    tasks = trials([Entry("files", "pair.json", pair)], DESIGN)
    assert tasks == trials([Entry("files", "pair.json", pair)], DESIGN)
    told = [(task.labels["time_limit"], task.labels["solver"], task.labels["seed"]) for task in tasks]
    assert told == [(t, s, n) for t in (10.0, 60.0) for s in ("greedy", "cpsat") for n in (0, 1)]
    assert tasks[0].key == f"{instance_sha256(pair)} greedy time_limit=10.0 seed=0 workers=2"


def test_keys_follow_the_content_and_the_limits_never_the_name(pair: Instance) -> None:
    keys = {task.key for task in trials([Entry("files", "pair.json", pair)], DESIGN)}
    assert len(keys) == 8
    again = [Entry("files", "pair.json", pair), Entry("copies", "copy.json", pair)]
    assert [task.key for task in trials(again, DESIGN)] == [task.key for task in trials(again[:1], DESIGN)]
    changes: list[dict[str, Any]] = [{"gap": 0.1}, {"threads": 1}, {"work_limit": 1.0}, {"certify_limit": 1.0}]
    for other in (replace(DESIGN, **change) for change in changes):
        assert not keys & {task.key for task in trials(again, other)}
    heavier = replace(pair, jobs=(replace(pair.jobs[0], weight=7), *pair.jobs[1:]))
    assert not keys & {task.key for task in trials([Entry("files", "pair.json", heavier)], DESIGN)}


def test_a_measured_solve_fills_its_columns(pair: Instance) -> None:
    (task,) = trials([Entry("files", "pair.json", pair)], Design(("cpsat",), (0,), (None,), work_limit=5.0))
    row = {**task.labels, "error": None, **task.function(*task.arguments)}
    assert set(COLUMNS) <= row.keys()
    assert (row["status"], row["objective"], row["bound"], row["gap"]) == ("optimal", 1800, 1800, 0.0)
    assert row["trajectory"][-1][1:] == [1800, 1800]
    assert 0 <= row["seconds_to_objective"] <= row["seconds"]
    assert 0 < row["primal_dual_integral"] <= row["seconds"]
    assert row["cpu_seconds"] > 0 and row["peak_rss_mib"] > 1
    assert row["versions"]["ortools"]


def test_a_measured_solve_may_be_followed_by_a_search_for_a_proof() -> None:
    rows = []
    for limit in (None, 20.0):
        design = Design(("cpsat",), (0,), (None,), work_limit=5.0, certify_limit=limit)
        (task,) = trials([Entry("tiny", "tiny/000", load("tiny/000"))], design)
        rows.append({"key": task.key, **task.labels, "error": None, **task.function(*task.arguments)})
    told = [(row["status"], row["certified"], row["certify_limit"]) for row in rows]
    assert told == [("optimal", False, None), ("optimal", True, 20.0)]
    assert (rows[1]["verdict"], rows[1]["certified_bound"]) == ("certified optimal", rows[1]["bound"])
    (cell,) = summary(rows)
    assert (cell.proven, cell.certified, cell.certified_optimal) == (2, 1, 1)


def test_a_solver_that_refuses_the_instance_tells_so_in_its_row(pair: Instance) -> None:
    cyclic = replace(pair, horizon="cyclic", objective="period")
    row = measure(encode_instance(cyclic), "ilp", Options(work_limit=1.0, threads=1))
    assert "'ilp'" in row["error"] and "cyclic" in row["error"]
    assert row["seconds"] >= 0 and "objective" not in row


def test_phased_plans_are_measured_too(pair: Instance) -> None:
    row = measure(encode_instance(pair), "phased", Options(time_limit=5, threads=1))
    assert row["objective"] >= 1800 and row["trajectory"][-1][1] == row["objective"]
