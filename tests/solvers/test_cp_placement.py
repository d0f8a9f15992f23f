"""Placements of all jobs at once by CP-SAT."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.instances import generate
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.moves.cp_placement import PlacementModel
from jigsaw_opt.solvers.solve_state import SolveState


def ignore(event: Event) -> None:
    """Nobody looks at the progress."""


@pytest.mark.parametrize("seed", [7, 39, 71])
def test_every_placement_leads_to_a_plan_where_memory_is_tight(seed: int) -> None:
    instance = generate("server", seed)
    operations = compile_instance(instance)
    asked = demands(operations)
    assert asked is not None
    data = ProblemData(operations, asked)
    solve_state = SolveState("placement", operations, Options(threads=1), ignore)
    assert cpsat_loads.fits(operations)
    model = PlacementModel(data, Engine(Budget(solve_state)), Random(1))
    assert model.within(solve_state.bound // 2) is None
    assert model.failed == solve_state.bound // 2
    assignments = model.within(2 * solve_state.bound)
    assert assignments is not None
    count = len(assignments)
    evaluator = Evaluator(operations, data.layout)
    plan = evaluator.timetable(evaluator.evaluate(assignments, [1.0] * count, [0] * count))
    assert solve_state.offer(plan)
    found = solve_state.result(StoppedBy.COMPLETED).plan
    assert found is not None
    assert not check(instance, found)
    caps = data.caps([assignment.gpus for assignment in assignments])
    assert any(min(own) < job.levels for own, job in zip(caps, operations.jobs, strict=True))
