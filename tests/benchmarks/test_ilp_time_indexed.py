"""The disjunctive and the time-indexed program of the same jobs."""

from __future__ import annotations

import pytest
from ilp_time_indexed import disjunctive, instance, measure, time_indexed

from jigsaw_opt.formulations.ilp_timetable import objective_step
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.timetable import objective_of
from jigsaw_opt.solvers.greedy import greedy_timetable


@pytest.mark.slow
def test_both_programs_have_the_same_optimum() -> None:
    operations = compile_instance(instance(0, 2))
    warm = greedy_timetable(operations)
    assert warm is not None
    limit, step = objective_of(operations, warm.jobs), objective_step(operations)
    found = [measure(program(operations, limit), step, 60.0) for program in (disjunctive, time_indexed)]
    assert [row.proven for row in found] == [True, True]
    assert found[0].objective == pytest.approx(found[1].objective)
    assert found[0].objective <= limit
