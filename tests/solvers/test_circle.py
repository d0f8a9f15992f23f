"""Jobs laid around a circle wherever they fit."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.pieces import cut
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.layout import Layout, demands
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.cyclic.candidate_table import Catalogue, Fits
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import Circle
from jigsaw_opt.solvers.search.loads import Ground, fullest_us


def ground_of(instance: Instance) -> Ground:
    pieces = cut(instance)
    asked = demands(pieces)
    assert asked is not None
    return Ground(pieces, Layout(pieces), asked)


def lay(ground: Ground, period: int, tries: int = 60) -> Plan | None:
    draw = Random(1)
    berths = Fits(Catalogue(ground), period, draw)
    weights = [float(spot.iteration_us * spot.job.iterations) for spot in berths.quickest()]
    timetable = Circle(ground, berths, period, draw).lay(range(len(weights)), weights, tries, lambda: False)
    if timetable is None:
        return None

    def ignore(event: Event) -> None:
        """Progress is of no interest here."""

    control = Control("circle", ground.pieces, Options(), ignore)
    control.offer(timetable)
    return control.result(StoppedBy.COMPLETED).plan


@pytest.mark.parametrize(
    ("family", "seed", "changes"), [("server", 15, {}), ("rack", 7, {"load": 150}), ("pod", 4, {"servers": 8})]
)
def test_what_is_laid_keeps_every_rule(family: str, seed: int, changes: dict[str, int]) -> None:
    instance = generate(family, seed, objective="period", releases=False, **changes)
    ground = ground_of(instance)
    least = lower_bound(ground.pieces).value
    plan = lay(ground, 2 * least)
    assert plan is not None
    assert plan.period_us is not None
    assert plan.period_us <= 2 * least
    assert not check(instance, plan)
    assert lay(ground, least - 1) is None


def test_what_is_offered_is_short_enough_and_has_the_time() -> None:
    ground = ground_of(generate("cluster", 3, servers=8, load=100))
    berths = Fits(Catalogue(ground), 10**9, Random(0))
    longest = max(spot.iteration_us * spot.job.iterations for spot in berths.quickest())
    board = Circle(ground, berths, longest, Random(0)).board
    tight = Fits(Catalogue(ground), longest, Random(0))
    for index in range(len(ground.pieces.jobs)):
        spots = list(tight.spots(board.loads, index))
        assert spots
        assert all(fullest_us([spot]) <= longest for spot in spots)
        lengths = [spot.iteration_us for spot in Fits(Catalogue(ground), 10**9, Random(0)).spots(board.loads, index)]
        assert min(lengths) >= tight.quickest()[index].iteration_us


def test_slow_gpus_are_left_to_jobs_that_they_are_fast_enough_for() -> None:
    ground = ground_of(generate("cluster", 3, servers=8, load=100, widths=(8,)))
    type_of = ground.layout.type_of

    def types(period: int) -> list[str]:
        berths = Fits(Catalogue(ground), period, Random(0))
        loads = Circle(ground, berths, period, Random(0)).board.loads
        return [type_of[spot.gpus[0]] for spot in berths.spots(loads, 0)]

    quickest = Fits(Catalogue(ground), 10**9, Random(0)).quickest()[0]
    length = quickest.iteration_us * quickest.job.iterations
    assert types(4 * length)[0] == "a100"
    assert types(8 * length)[0] == "v100"
    assert set(types(length)) == {"h200"}
