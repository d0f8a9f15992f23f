"""Laying jobs around a circle group by group, and mending the groups in which some find no room by exchanging jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.berths import Catalogue
from jigsaw_opt.solvers.search.circle import Circle
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.laying import Laid
from jigsaw_opt.solvers.search.loads import Loads
from jigsaw_opt.solvers.search.nesting import COLD, HOT, Nesting
from jigsaw_opt.solvers.search.together import timed_together

__all__ = ["Grouped"]

_TRIES = 30
"""How often room is made in vain in a group, until jobs are exchanged with another one."""
_WORK_TOGETHER = 0.1
"""Deterministic seconds of the engine for the wide jobs of a group."""
_STEPS_A_JOB = 3000
"""Steps of nesting when groups exchange jobs."""


class Grouped:
    """One attempt at a period.

    Parameters
    ----------
    catalogue
        All berths.
    nesting
        Where jobs go; it changes as groups exchange jobs.
    period
        Length of the circle in microseconds.
    draw
        Source of chance.
    engine
        Times the wide jobs of a group together where laying them one by one leaves some without room.
    weights
        Of all jobs; the heaviest of a group are laid first.
    stop
        Asked after every job and every try; once it holds, the attempt is given up.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        nesting: Nesting,
        period: int,
        draw: random.Random,
        engine: Engine,
        weights: Sequence[float],
        stop: Callable[[], bool],
    ) -> None:
        self.catalogue, self.nesting, self.period, self.draw = catalogue, nesting, period, draw
        self.engine, self.weights, self.stop = engine, weights, stop
        self.circle = Circle(catalogue.ground, self, period, draw)

    def spots(self, loads: Loads, index: int) -> Iterator[PlacedJob]:
        """The job on the least loaded GPUs of its berth."""
        spot = self.catalogue.spot(loads, index, self.nesting.berth(index), self.period)
        if spot is not None:
            yield spot

    def target(self, index: int) -> PlacedJob:
        """The job at its berth as if it were alone."""
        return self.nesting.berth(index).alone

    def lay(self, patience: int) -> Timetable | None:
        """The plan with all jobs laid, or None where some found no room.

        Parameters
        ----------
        patience
            How often groups exchange jobs in vain, without fewer failing than ever before, until it is given up.
        """
        inside: dict[int | None, list[int]] = {}
        for index in range(len(self.weights)):
            inside.setdefault(self.nesting.group(index), []).append(index)
        if self.circle.insert(inside.pop(None, ()), self.weights, _TRIES, self.stop):
            return None
        unlaid = self._lay_groups({group: jobs for group, jobs in inside.items() if group is not None})
        fewest, left = len(unlaid), patience
        while unlaid and left and not self.stop():
            unlaid = self._exchange(unlaid)
            fewest, left = (len(unlaid), patience) if len(unlaid) < fewest else (fewest, left - 1)
        return None if unlaid else self.circle.board.timetable()

    def _lay_groups(self, groups: Mapping[int, Sequence[int]]) -> set[int]:
        """Lay the jobs of each group, the wide ones one by one or else together; returns the groups with none laid."""
        insert, board = self.circle.insert, self.circle.board
        wide = {g: [index for index in jobs if self.target(index).links] for g, jobs in groups.items()}
        placed: dict[int, list[PlacedJob]] = {}
        failed: set[int] = set()
        for g, jobs in wide.items():
            if insert(jobs, self.weights, 0, self.stop):
                self._taken(jobs)
                spots = self._placed(jobs)
                if spots is None:
                    failed.add(g)
                else:
                    placed[g] = spots
        timed = timed_together(board, [*placed.values()], self.engine, _WORK_TOGETHER)
        for g, laid in zip(placed, timed, strict=True):
            # Groups that were timed at once may meet on a link between racks.
            if laid is None or not all(map(board.admits, laid)):
                failed.add(g)
            else:
                for index, it in zip(wide[g], laid, strict=True):
                    board.put(index, it)
        for g, inside in groups.items():
            narrow = [index for index in inside if index not in wide[g]]
            if g not in failed and insert(narrow, self.weights, _TRIES, self.stop):
                self._taken(inside)
                failed.add(g)
        return failed

    def _placed(self, jobs: Sequence[int]) -> list[PlacedJob] | None:
        """The jobs at their berths, all at once; None where memory does not admit them."""
        loads, found = self.circle.board.loads, []
        for index in jobs:
            spot = next(self.spots(loads, index), None)
            if spot is None:
                break
            found.append(spot)
            # Who is at which level is settled later.
            loads.place(index, spot, [max(map(max, spot.plan.rows))] * len(spot.gpus))
        for index, _ in zip(jobs, found, strict=False):
            loads.unplace(index)
        return found if len(found) == len(jobs) else None

    def _exchange(self, unlaid: set[int]) -> set[int]:
        """Share out the jobs of a group that is not laid and another one anew; returns which are not laid then.

        Nothing changes where more of the two would not be.
        """
        nesting, board = self.nesting, self.circle.board
        pair = {self.draw.choice(sorted(unlaid)), self.draw.randrange(len(nesting.groups))}
        jobs = [index for index in range(len(self.weights)) if nesting.group(index) in pair]
        state = nesting.state()
        nesting.anneal(jobs, sorted(pair), _STEPS_A_JOB * len(jobs), HOT, COLD)
        if nesting.fullest(pair) * nesting.target > self.period:
            nesting.restore(state)
            return unlaid
        before = self._taken(jobs)
        failed = self._lay_groups({g: [index for index in jobs if nesting.group(index) == g] for g in sorted(pair)})
        if len(failed) <= len(unlaid & pair):
            return unlaid - pair | failed
        self._taken(jobs)
        nesting.restore(state)
        for index, laid in before:
            board.put(index, laid)
        return unlaid

    def _taken(self, jobs: Sequence[int]) -> list[tuple[int, Laid]]:
        """Take jobs off the board, as far as they are there."""
        board = self.circle.board
        return [(index, board.take(index)) for index in jobs if board.laid[index] is not None]
