"""Engines of mixed-integer programs side by side, in a small part."""

from __future__ import annotations

import pytest

pytest.importorskip("highspy")
pytest.importorskip("ortools")
pytest.importorskip("pulp")

from mip_engines import contradiction, solve_apart

from jigsaw_opt.solvers.engines.mip import Ending


@pytest.mark.slow
def test_scip_solves_in_a_process_of_its_own_and_a_failure_is_told() -> None:
    row = solve_apart("mathopt-scip", "tiny/002", ["--seconds", "60"])
    assert (row["ending"], row["objective"]) == (Ending.SOLVED.value, 1874)
    assert contradiction("tiny/002", row) == ""
    assert solve_apart("mathopt-scip", "tiny/nothing", [])["ending"] is None


@pytest.mark.parametrize(
    ("ending", "objective", "bound", "told"),
    [
        (Ending.SOLVED, 1874, 1873.5, ""),
        (Ending.STOPPED, None, 1833.0, ""),
        (Ending.INFEASIBLE, None, 0.0, "infeasible"),
        (Ending.SOLVED, 1875, 1874.0, "1875 is called optimal"),
        (Ending.STOPPED, 1880, 1875.0, "a bound of 1875.0 above 1874"),
        (Ending.STOPPED, 1873, 1833.0, "below the bound 1874"),
    ],
)
def test_what_an_engine_says_is_held_against_what_is_known(
    ending: Ending, objective: int | None, bound: float, told: str
) -> None:
    row = {"ending": ending.value, "objective": objective, "bound": bound, "step": 1}
    found = contradiction("tiny/002", row)
    assert told in found and bool(told) == bool(found)
