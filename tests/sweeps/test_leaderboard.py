"""Result files of anybody: what is wrong with them, and who is ranked where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.instances import best_known, names
from jigsaw_opt.sweeps.bench.leaderboard import Contestant, leaderboard, read_results

OTHERS = ["a" * 64, "b" * 64, "c" * 64]


def result(instance: int, solver: str, objective: int | None, **more: Any) -> dict[str, Any]:
    return {"instance_sha256": OTHERS[instance], "solver": solver, "objective": objective, "time_limit": 10, **more}


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def stored(name: str) -> tuple[str, int]:
    best = best_known(name)
    assert best is not None and best.objective is not None
    return best.instance_sha256, best.objective


def test_less_mean_gap_is_better_and_an_instance_without_a_plan_counts_as_the_whole() -> None:
    rows = [
        result(0, "steady", 125),
        result(1, "steady", 100),
        result(0, "bold", 100),
        result(1, "bold", None),
        result(0, "late", 100, time_limit=60),
    ]
    board = leaderboard(rows)
    told = [
        (standing.rank, standing.contestant.solver, standing.mean_gap, standing.best_share, standing.unsolved)
        for standing in board.standings
    ]
    assert told == [
        (1, "steady", pytest.approx(0.1), 0.5, 0),
        (2, "bold", 0.5, 0.5, 1),
        (1, "late", 0.5, 0.5, 1),
    ]
    assert (board.instances, board.without_plan) == (2, 0)


def test_runs_of_an_instance_count_by_their_median() -> None:
    rows = [result(0, "a", objective, seed=seed) for seed, objective in enumerate((100, 200, None))]
    line = leaderboard(rows).standings[0]
    assert (line.seeds, line.mean_gap, line.best_share, line.solved) == (3, 0.5, 0.0, 1)


def test_equal_figures_have_the_same_rank_and_what_differs_is_a_line_of_its_own() -> None:
    rows = [result(0, "a", 100, version="1"), result(0, "a", 100, version="2"), result(0, "a", 200, threads=4)]
    ranks = [(standing.rank, standing.contestant) for standing in leaderboard(rows).standings]
    assert ranks == [
        (1, Contestant("a", "1", "", None, 10, None)),
        (1, Contestant("a", "2", "", None, 10, None)),
        (3, Contestant("a", "", "", 4, 10, None)),
    ]


def test_stored_values_are_a_yardstick_and_better_ones_are_named() -> None:
    sha256, best = stored("pod/weighted")
    row = {"instance_sha256": sha256, "solver": "a", "objective": 2 * best}
    board = leaderboard([row])
    assert board.standings[0].mean_gap == pytest.approx(0.5)
    assert not board.improved and not board.without_certificate
    board = leaderboard([row, {**row, "solver": "b", "objective": best - 1}])
    assert (board.standings[0].contestant.solver, board.improved) == ("b", ("pod/weighted",))
    assert board.without_certificate == ("pod/weighted",)


def test_of_a_set_all_instances_count() -> None:
    sha256, best = stored("shop/job-6x4")
    rows = [{"instance_sha256": sha256, "solver": "a", "objective": best}, result(0, "b", 1)]
    board = leaderboard(rows, "shop")
    count = len(names("shop"))
    assert [(standing.contestant.solver, standing.solved, standing.unsolved) for standing in board.standings] == [
        ("a", 1, count - 1)
    ]
    with pytest.raises(InvalidInputError):
        leaderboard(rows, "rack")
    with pytest.raises(UsageError):
        leaderboard(rows, "rak")


def test_instances_that_nobody_has_a_plan_of_are_left_out() -> None:
    board = leaderboard([result(0, "a", 5), result(1, "a", None)])
    assert (board.instances, board.without_plan, board.standings[0].mean_gap) == (1, 1, 0.0)


def test_every_problem_of_all_files_is_listed(tmp_path: Path) -> None:
    sha256, best = stored("tiny/000")
    proven = {"instance_sha256": sha256, "solver": "a"}
    first = written(
        tmp_path / "first.jsonl",
        {"instance_sha256": "short", "solver": 3},
        "no json",
        {**proven, "seed": 1},
        {**proven, "seed": 2, "objective": best - 1},
        {**proven, "seed": 3, "objective": best, "bound": best + 1},
        result(0, "a", 5, seed=4, threads=0),
    )
    second = written(tmp_path / "second.jsonl", result(0, "b", 7), result(0, "b", 7), result(0, "b", 8))
    with pytest.raises(InvalidInputError) as caught:
        read_results([first, second, tmp_path / "none.jsonl"])
    told = [(problem.path.removeprefix(f"{tmp_path}/"), problem.code) for problem in caught.value.problems]
    assert told == [
        ("first.jsonl:1.instance_sha256", "malformed"),
        ("first.jsonl:1.solver", "wrong-type"),
        ("first.jsonl:1.objective", "missing-field"),
        ("first.jsonl:2", "not-json"),
        ("first.jsonl:3.objective", "missing-field"),
        ("first.jsonl:4.objective", "contradiction"),
        ("first.jsonl:5.bound", "contradiction"),
        ("first.jsonl:6.threads", "out-of-range"),
        ("second.jsonl:3", "duplicate-name"),
        ("none.jsonl", "unreadable"),
        ("first.jsonl:5.bound", "contradiction"),
    ]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("objective", -5, "must be an integer from 0 to 2^53 - 1 or null; is -5"),
        ("bound", 1.5, "must be an integer from 0 to 2^53 - 1 or null; is a number with a fraction or an exponent"),
        ("time_limit", -1, "must be a number of at least 0 or null; is -1"),
        ("error", "", 'must be a non-empty text or null; is ""'),
    ],
)
def test_all_that_a_value_may_be_is_told(key: str, value: object, told: str, tmp_path: Path) -> None:
    file = written(tmp_path / "rows.jsonl", {**result(0, "a", 5), key: value})
    with pytest.raises(InvalidInputError) as caught:
        read_results([file])
    assert [str(problem) for problem in caught.value.problems] == [f"{file}:1.{key}: {told}"]


def test_results_that_contradict_each_other_are_told_with_both_places(tmp_path: Path) -> None:
    first = written(tmp_path / "first.jsonl", result(0, "a", 5, bound=1), result(1, "a", 9), result(2, "a", 4, bound=4))
    second = written(
        tmp_path / "second.jsonl",
        result(0, "b", 20, bound=10),
        result(0, "c", None, bound=6),
        result(1, "b", None, status="infeasible"),
        result(2, "b", 4, bound=4),
    )
    with pytest.raises(InvalidInputError) as caught:
        read_results([first, second])
    assert [str(problem) for problem in caught.value.problems] == [
        f"{second}:1.bound: bound 10 is above the objective 5 of {first}:1",
        f"{second}:2.bound: bound 6 is above the objective 5 of {first}:1",
        f"{second}:3.status: no plan is said to exist, beside the objective 9 of {first}:2",
    ]


def test_a_run_that_failed_needs_no_objective_and_the_same_row_counts_once(tmp_path: Path) -> None:
    failed = {"instance_sha256": OTHERS[0], "solver": "a", "error": "no memory", "anything": [1]}
    file = written(tmp_path / "rows.jsonl", failed, result(0, "b", 3), result(0, "b", 3))
    rows = read_results([file, tmp_path])
    assert [row["solver"] for row in rows] == ["a", "b"]
    assert [standing.unsolved for standing in leaderboard(rows).standings] == [0, 1]
