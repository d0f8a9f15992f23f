"""Numbers beyond 64 bits, which no engine and no array of machine numbers holds, in every solver."""

from __future__ import annotations

import pytest

from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.solvers.bounds.packing.column_generation import Item, best_pattern
from jigsaw_opt.solvers.engines.magnitude import engine_excess, infinity, largest_objective, orders_fit, schedules_fit
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find, names
from jigsaw_opt.solvers.solve import solve
from tests.extreme_instances import enlarged, extreme_instance


@pytest.mark.slow
@pytest.mark.parametrize("solver", [name for name in names() if name != "phased"])
@pytest.mark.parametrize("seed", [11])
def test_products_beyond_64_bits_keep_a_checked_plan_and_an_honest_bound(solver: str, seed: int) -> None:
    instance = extreme_instance(seed)
    if find(solver).unsupported(instance) is not None:
        pytest.skip(f"{solver} does not take a {instance.horizon} horizon")
    result = solve(instance, solver, Options(threads=1, work_limit=0.1))
    assert result.objective is not None
    assert result.bound <= result.objective


@pytest.mark.parametrize("solver", ["greedy", "search", "portfolio", "cpsat"])
@pytest.mark.parametrize(("workers", "objective"), [(1, "makespan"), (2, "weighted_completion"), (1, "period")])
def test_schedules_beyond_64_bits_are_exact_beside_compiled_functions(
    solver: str, workers: int, objective: Objective
) -> None:
    instance = enlarged(generate("tiny", 1, objective=objective))
    assert not schedules_fit(compile_instance(instance))
    result = solve(instance, solver, Options(threads=workers, work_limit=0.01))
    assert result.objective is not None
    assert result.objective > 2**64
    assert result.bound <= result.objective


def test_numbers_fit_up_to_what_is_counted_with() -> None:
    operations = compile_instance(generate("server", 1))
    assert schedules_fit(operations) and orders_fit(operations) and engine_excess(serial_limit(operations)) is None
    large = compile_instance(enlarged(generate("server", 1)))
    assert not (schedules_fit(large) or orders_fit(large) or engine_excess(serial_limit(large)) is None)
    assert infinity(operations) < 2**63
    assert infinity(large) > largest_objective(large)


@pytest.mark.parametrize("factor", [1, 2**53, 2**90])
def test_patterns_of_a_bin_are_worth_as_much_whatever_the_size_of_numbers(factor: int) -> None:
    items = [Item(4 * factor, 3, 0), Item(3 * factor, 2, factor), Item(factor, 9, 0)]
    values = [5 * factor, 4 * factor, factor]
    found = best_pattern(items, values, 10 * factor)
    assert found.value >= 12 * factor
    assert found.value == sum(values[k] * copies for k, copies in found.copies.items())
