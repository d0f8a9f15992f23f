"""Sia's one-round program: the paper's worked example, and how goodputs become costs."""

from __future__ import annotations

import numpy as np
import pytest

from jigsaw_opt.formulations.sia_round import (
    NO_ALLOCATION,
    SiaRound,
    build,
    configurations,
    normalised,
    restart_factors,
)
from jigsaw_opt.solvers.allocation.sia_round import solve_round
from jigsaw_opt.solvers.engines.highs import solve_program

TABLE_1_GPUS = np.array([[1, 0], [2, 0], [0, 1], [0, 2], [0, 4]])
TABLE_1_GOODPUT = np.array([[1.0, 1, 2, 3, 4], [2, 4, 1, 2, 3]])


@pytest.fixture
def table_1() -> SiaRound:
    goodput = normalised(TABLE_1_GOODPUT, np.array([1, 1]))
    return build(goodput, TABLE_1_GPUS, np.array([2, 4]), power=1.0)


def test_worked_example_of_the_paper(table_1: SiaRound) -> None:
    solved = solve_round(table_1)
    assert solved is not None
    assert solved.choice.tolist() == [4, 1]
    assert solved.objective == pytest.approx(-8)
    assert solved.bound == pytest.approx(-8, abs=1e-3)


def test_the_integer_program_has_the_same_optimum(table_1: SiaRound) -> None:
    solved = solve_program(table_1.program())
    assert solved is not None
    choice = table_1.choice(solved.values)
    assert choice.tolist() == [4, 1]
    assert table_1.objective(choice) == pytest.approx(solved.objective)
    assert table_1.used(choice).tolist() == [2, 4]


def test_goodputs_are_in_units_of_the_worst_configuration() -> None:
    found = normalised(np.array([[0.0, 4, 8], [3, 0, 6], [0, 0, 0]]), np.array([1, 2, 1]))
    assert found.tolist() == [[0, 1, 2], [2, 0, 4], [0, 0, 0]]


def test_restarts_make_a_change_dear() -> None:
    factors = restart_factors(np.array([300.0, 300, 30]), np.array([0, 2, 3]), np.array([100.0, 100, 100]))
    assert factors.tolist() == [0.75, 0.25, 0.0]
    goodput = np.array([[1.0, 4.0]])
    problem = build(goodput, np.array([[1], [2]]), np.array([2]), factors=factors[:1], current=np.array([0]))
    assert problem.cost.tolist() == [[1.0, pytest.approx((0.75 * 4) ** -0.5)]]


def test_jobs_that_must_keep_what_they_have() -> None:
    problem = build(np.array([[1.0, 4.0], [1.0, 4.0]]), np.array([[1], [2]]), np.array([3]))
    kept = problem.keeping(np.array([True, False]), np.array([0, NO_ALLOCATION]))
    solved = solve_round(kept)
    assert solved is not None
    assert solved.choice.tolist() == [0, 1]
    assert solve_round(problem.keeping(np.array([True, True]), np.array([1, 1]))) is None


def test_configurations_are_parts_of_a_server_or_whole_servers() -> None:
    assert configurations(3, 4) == ((1, 1), (1, 2), (1, 4), (2, 8), (3, 12))
    assert len(configurations(16, 8)) == 16 + 3  # N + log2 R


@pytest.mark.parametrize("power", [-0.5, 1.0])
def test_an_idle_job_costs_whatever_the_sign_of_the_power(power: float) -> None:
    problem = build(np.ones((1, 1)), np.array([[1]]), np.array([1]), power=power)
    assert problem.objective(np.array([NO_ALLOCATION])) == 1.1
    assert problem.objective(np.array([0])) < 1.1


def test_a_configuration_without_goodput_is_no_column() -> None:
    problem = build(np.array([[0.0, 1.0]]), np.array([[1], [2]]), np.array([1]))
    assert len(problem.program().costs) == 2
    solved = solve_round(problem)
    assert solved is not None
    assert solved.choice.tolist() == [NO_ALLOCATION]
