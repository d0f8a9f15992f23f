"""Jobs laid on a circle on which others lie already, at its period or at the least longer one that has room."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.candidates import Places
from jigsaw_opt.solvers.search.cyclic.candidate_table import Given
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import Circle
from jigsaw_opt.solvers.search.loads import Ground, Loads, fullest_us
from jigsaw_opt.solvers.search.state.insertion import Laid

__all__ = ["Partly", "laid_anew", "mend"]

_TRIES_A_JOB = 4
_FEW = 10
"""Jobs that are laid between the others; where more have lost their place, the others need not stay where they lie."""
_HALVINGS = 4
_FIRST_STRETCH = 1 / 128


class Partly:
    """Berths of which some jobs keep the spot that they have, and the others choose theirs when they are laid.

    Parameters
    ----------
    ground
        The instance.
    spots
        Where every job is, or the choosing ones begin with.
    draw
        Source of chance.
    free
        Numbers of the jobs that choose.
    """

    def __init__(self, ground: Ground, spots: Sequence[PlacedJob], draw: random.Random, free: frozenset[int]) -> None:
        self._spots, self.free, self.places = spots, free, Places(ground, draw)

    def spots(self, loads: Loads, index: int) -> Iterator[PlacedJob]:
        """Spots that memory admits now; the neighbours of a waiting job may have come back with other levels."""
        if index not in self.free:
            if loads.admits(index, self._spots[index]):
                yield self._spots[index]
            return
        for gpus in self.places.of(loads, index, thorough=True):
            spot = loads.spot(index, gpus)
            if spot is not None:
                yield spot

    def target(self, index: int) -> PlacedJob:
        """Where a job is, or would be if it were alone."""
        return self._spots[index]


def mend(
    ground: Ground,
    kept: Mapping[int, Laid],
    fixed: Mapping[int, Sequence[int]],
    period: int,
    draw: random.Random,
    stop: Callable[[], bool],
) -> Iterator[Timetable]:
    """Plans in which the kept jobs stay at their places, better and better.

    Parameters
    ----------
    ground
        The instance.
    kept
        Jobs that lie on the circle, by number.
    fixed
        GPUs of the jobs that may not choose them, by number.
    period
        Its length in microseconds.
    draw
        Source of chance.
    stop
        Asked now and then; once it holds, no further plan is looked for.
    """
    spots = _spots(ground, kept, fixed)
    if spots is None:
        return
    free = frozenset(range(len(spots))).difference(kept, fixed)
    weights = [sum(map(sum, spot.exchange)) for spot in spots]
    waiting = [index for index in range(len(spots)) if index not in kept]

    def attempt(stretch: int) -> Timetable | None:
        """The waiting jobs laid between the others where they are few, else all jobs laid anew."""
        for stay in (kept, {}) if len(waiting) <= _FEW else ({},):
            circle = Circle(ground, Partly(ground, spots, draw, free), period + stretch, draw)
            cut = draw.randrange(period)
            for index, laid in stay.items():
                circle.board.put(index, _stretched(laid, period, stretch, cut))
            left = [index for index in range(len(spots)) if index not in stay]
            plan = circle.lay(left, weights, _TRIES_A_JOB * len(left) if stay else _FEW, stop)
            if plan is not None or not waiting:
                return plan
        return None

    plan = attempt(0)
    if plan is not None or not waiting:
        yield from () if plan is None else (plan,)
        return
    # The load where the jobs are now says how much is needed at least.
    low = max(0, min(fullest_us(spots), 2 * period) - period - 1) if not free else 0
    high = low + max(1, round(period * _FIRST_STRETCH))
    # An empty stretch as long as all waiting jobs in turn has room for them; memory may never have.
    most = 2 * period + sum(spots[index].iteration_us * spots[index].job.iterations for index in waiting)
    while (plan := attempt(high)) is None:
        if stop() or high > most:
            return
        low, high = high, 2 * high - low
    yield plan
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        if middle == low or stop():
            return
        plan = attempt(middle)
        if plan is None:
            low = middle
        else:
            high = middle
            yield plan


def laid_anew(
    ground: Ground, spots: Sequence[PlacedJob], best: int, draw: random.Random, stop: Callable[[], bool]
) -> Iterator[Timetable]:
    """Plans of a whole placement with shorter periods than `best`, better and better.

    Parameters
    ----------
    ground
        The instance.
    spots
        Where every job is.
    best
        Period to beat, in microseconds.
    draw
        Source of chance.
    stop
        Asked now and then; once it holds, no further plan is looked for.
    """
    weights = [sum(map(sum, spot.exchange)) for spot in spots]
    low, high = min(best, fullest_us(spots)) - 1, best
    for _ in range(_HALVINGS):
        period = (low + high) // 2
        if period == low or stop():
            return
        plan = Circle(ground, Given(spots), period, draw).lay(range(len(spots)), weights, _FEW, stop)
        if plan is None:
            low = period
        else:
            high = period
            yield plan


def _spots(ground: Ground, kept: Mapping[int, Laid], fixed: Mapping[int, Sequence[int]]) -> list[PlacedJob] | None:
    """Where the kept and the fixed jobs are, and where the others would be if they were alone; None without a place."""
    loads, places = Loads(ground), Places(ground, random.Random(0))
    spots = []
    for index in range(len(ground.pieces.jobs)):
        if index in kept:
            spots.append(kept[index].spot)
            continue
        choices = [fixed[index]] if index in fixed else places.of(loads, index, thorough=True)
        spot = next((it for gpus in choices if (it := loads.spot(index, gpus)) is not None), None)
        if spot is None:
            return None
        spots.append(spot)
    return spots


def _stretched(laid: Laid, period: int, stretch: int, cut: int) -> Laid:
    """A job after `stretch` microseconds are put in at a moment of every period; it keeps its durations."""

    def later(start: int) -> int:
        return start + stretch * ((start - cut) // period + 1)

    if not stretch:
        return laid
    return replace(
        laid,
        blocks=[[later(start) for start in row] for row in laid.blocks],
        transfers=[[later(start) for start in row] for row in laid.transfers],
        start=later(laid.start),
        end=later(laid.end - 1) + 1,
    )
