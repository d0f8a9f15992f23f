"""Laying placed jobs onto a circle of a given period, one after the other, and making room where one finds none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.board import Board
from jigsaw_opt.solvers.search.laying import Laid
from jigsaw_opt.solvers.search.loads import Ground

__all__ = ["Circle"]

_MOST_NEIGHBOURS = 4
_FEW, _HOPELESS = 5, 15
"""With more jobs waiting than a few, and than one in so many, the period is given up at once."""
_MOST_PHASES = 24


class Circle:
    """One attempt at a period.

    Parameters
    ----------
    ground
        The instance.
    spots
        Where every job is.
    period
        Length of the circle in microseconds.
    draw
        Source of chance.
    """

    def __init__(self, ground: Ground, spots: Sequence[PlacedJob], period: int, draw: random.Random) -> None:
        self.spots, self.period, self.draw = spots, period, draw
        self.board = Board(ground, period)

    def lay(self, order: Sequence[int], tries: int, stop: Callable[[], bool]) -> Timetable | None:
        """The plan with all jobs laid, or None where some found no room.

        Parameters
        ----------
        order
            In which the jobs are laid at first.
        tries
            How often room is made for a job that found none.
        stop
            Asked after every job and every try; once it holds, the attempt is given up.
        """
        waiting = []
        for index in order:
            if stop():
                return None
            if not self._insert(index):
                waiting.append(index)
        if len(waiting) > max(_FEW, len(order) // _HOPELESS):
            return None
        while waiting and tries > 0 and not stop():
            tries -= 1
            index = waiting.pop(self.draw.randrange(len(waiting)))
            if not self._make_room(index):
                waiting.append(index)
        return None if waiting else self.board.timetable()

    def _insert(self, index: int) -> bool:
        laid = self._best(index)
        if laid is not None:
            self.board.put(index, laid)
        return laid is not None

    def _best(self, index: int) -> Laid | None:
        """The job laid at the phase at which it takes least time; the first one without any waiting will do."""
        spot = self.spots[index]
        alone = spot.iteration_us * spot.job.iterations
        best = None
        for phase in self._phases(spot):
            laid = self.board.lay(index, spot, phase, None)
            if laid is None or (best is not None and laid.end - laid.start >= best.end - best.start):
                continue
            best = laid
            if laid.end - laid.start <= alone:
                break
        return best

    def _phases(self, spot: PlacedJob) -> list[int]:
        """Starts at which the first transfer follows another one at once, or a block another one, and 0."""
        ready = max(table[0] for table in spot.tables)
        phases = {0}
        for link in spot.links:
            phases.update((end - ready) % self.period for end in self.board.links[link].ends)
        for gpu in spot.gpus[:1]:
            phases.update(end % self.period for end in self.board.gpus[gpu].ends)
        found = sorted(phases)
        return found if len(found) <= _MOST_PHASES else sorted(self.draw.sample(found, _MOST_PHASES))

    def _make_room(self, index: int) -> bool:
        """Take some jobs away that share links or GPUs with a waiting one, and lay it and then them."""
        near = self._neighbours(index)
        away = self.draw.sample(near, min(len(near), self.draw.randint(1, _MOST_NEIGHBOURS)))
        old = [(other, self.board.take(other)) for other in away]
        done: list[int] = []
        for job in (index, *sorted(away, key=self._work, reverse=True)):
            if not self._insert(job):
                break
            done.append(job)
        if len(done) > len(away):
            return True
        for job in done:
            self.board.take(job)
        for other, laid in old:
            self.board.put(other, laid)
        return False

    def _work(self, index: int) -> int:
        spot = self.spots[index]
        return spot.iteration_us * spot.job.iterations * (1 + len(spot.links))

    def _neighbours(self, index: int) -> list[int]:
        loads, spot = self.board.loads, self.spots[index]
        found: dict[int, None] = {}
        for link in spot.links:
            found.update(dict.fromkeys(loads.on_link[link]))
        for gpu in spot.gpus if not spot.links else ():
            found.update(dict.fromkeys(loads.on_gpu[gpu]))
        return [other for other in found if other != index]
