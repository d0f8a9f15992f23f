"""Placements of all jobs at once by CP-SAT."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.formulations import cpsat_loads
from jigsaw_opt.instances import generate
from jigsaw_opt.problem import cut
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.greedy.layout import Layout, demands
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.moves.cp_placement import PlacementModel
from jigsaw_opt.solvers.search.problem_data import ProblemData


def ignore(event: Event) -> None:
    """Nobody looks at the progress."""


@pytest.mark.parametrize("seed", [7, 23, 39])
def test_every_placement_leads_to_a_plan_where_memory_is_tight(seed: int) -> None:
    instance = generate("server", seed)
    pieces = cut(instance)
    asked = demands(pieces)
    assert asked is not None
    data = ProblemData(pieces, Layout(pieces), asked)
    control = Control("seating", pieces, Options(workers=1), ignore)
    assert cpsat_loads.fits(pieces)
    seating = PlacementModel(data, Engine(Budget(control)), Random(1))
    assert seating.within(control.bound // 2) is None
    assert seating.failed == control.bound // 2
    spots = seating.within(2 * control.bound)
    assert spots is not None
    count = len(spots)
    evaluator = Evaluator(pieces, data.layout)
    plan = evaluator.timetable(evaluator.evaluate(spots, [1.0] * count, [0] * count))
    assert control.offer(plan)
    found = control.result(StoppedBy.COMPLETED).plan
    assert found is not None
    assert not check(instance, found)
    caps = data.caps([spot.gpus for spot in spots])
    assert any(min(own) < job.levels for own, job in zip(caps, pieces.jobs, strict=True))
