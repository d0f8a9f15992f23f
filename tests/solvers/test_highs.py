"""The adapter of HiGHS: outcomes of small programs, growth between runs, limits."""

from __future__ import annotations

import threading
from math import inf
from pathlib import Path

import pytest

import jigsaw_opt
from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.formulations.linear import Entries, LinearProgram, ProgramBuilder
from jigsaw_opt.problem.clock import Clock, limited
from jigsaw_opt.solvers.engines.highs import Ending, HighsEngine, solve_program

pytest.importorskip("highspy")


def knapsack(integer: bool, least: float = -inf) -> LinearProgram:
    """Items of value 5 and 4 that take 3 and 2 of 4; at most one of each."""
    builder = ProgramBuilder()
    items = builder.add_columns([-5.0, -4.0], upper=1.0, integer=integer)
    builder.add_rows(Entries([0, 0], items, [3.0, 2.0]), least, [4.0])
    return builder.program()


def test_a_linear_program_has_values_and_duals() -> None:
    found = solve_program(knapsack(integer=False))
    assert (found.ending, found.feasible) == (Ending.SOLVED, True)
    assert found.values.tolist() == pytest.approx([2 / 3, 1])
    assert found.objective == found.bound == pytest.approx(-22 / 3)
    assert found.duals.tolist() == pytest.approx([-5 / 3])


def test_an_integer_program_has_a_bound() -> None:
    found = solve_program(knapsack(integer=True))
    assert found.ending is Ending.SOLVED
    assert found.values.tolist() == pytest.approx([1, 0])
    assert found.objective == pytest.approx(-5)
    assert found.bound == pytest.approx(-5)


def test_a_program_without_a_solution_says_so() -> None:
    found = solve_program(knapsack(integer=False, least=6.0))
    assert (found.ending, found.feasible) == (Ending.INFEASIBLE, False)


def test_a_program_grows_between_runs() -> None:
    engine = HighsEngine(knapsack(integer=False))
    assert engine.run().objective == pytest.approx(-22 / 3)
    engine.add_column(-3.0, [0], [1.0])
    assert engine.run().values.tolist() == pytest.approx([0, 0, 4])
    engine.add_row(-inf, 1.0, [2], [1.0])
    assert engine.run().values.tolist() == pytest.approx([1 / 3, 1, 1])
    engine.limit_rows([2.0, 1.0])
    assert engine.run().objective == pytest.approx(-5)


def test_a_run_ends_with_the_clock_and_with_a_cancel() -> None:
    cancel = threading.Event()
    with limited(Clock(60.0, cancel)):
        assert solve_program(knapsack(integer=True)).ending is Ending.SOLVED
        cancel.set()
        with pytest.raises(OutOfTimeError):
            solve_program(knapsack(integer=True))
    engine = HighsEngine(knapsack(integer=True))
    engine.cancel()
    assert engine.run().ending is Ending.STOPPED


def test_no_other_module_knows_the_engine() -> None:
    package = Path(jigsaw_opt.__file__).parent
    users = [path for path in package.rglob("*.py") if "import highspy" in path.read_text()]
    assert [path.relative_to(package).as_posix() for path in users] == ["solvers/engines/highs.py"]
