"""Laying jobs around a circle group by group, and mending the groups in which some find no room by exchanging jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.cyclic.candidate_table import Catalogue
from jigsaw_opt.solvers.search.cyclic.hierarchy import Nesting
from jigsaw_opt.solvers.search.cyclic.joint_model import timed_together
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import Circle
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.loads import Loads
from jigsaw_opt.solvers.search.state.insertion import Laid

__all__ = ["Company", "Grouped"]

Company = tuple[tuple[int, int], ...]
"""Jobs of one group, by what they ask and how long they take there, in order."""

_TRIES = 30
"""How often room is made in vain in a group, until jobs are exchanged with another one."""
_WORK_TOGETHER = 0.015
"""Deterministic seconds of the engine for the wide jobs of a group."""
_SHARINGS = 40
"""How often two groups share out their jobs anew until the loads of both are within the period, at most."""


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
    untimed
        Wide jobs that were not timed together, with the longest period of which that is known; it grows. Groups are not
        given such jobs by an exchange.
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
        untimed: dict[Company, int],
    ) -> None:
        self.catalogue, self.nesting, self.period, self.draw = catalogue, nesting, period, draw
        self.engine, self.weights, self.stop, self.untimed = engine, weights, stop, untimed
        self.circle = Circle(catalogue.ground, self, period, draw)
        self._across: frozenset[int] = frozenset()

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
        self._across = frozenset(inside.pop(None, ()))
        if self.circle.insert(sorted(self._across), self.weights, _TRIES, self.stop):
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
                if laid is None and not self.stop():
                    self._remember(wide[g])
            else:
                for index, it in zip(wide[g], laid, strict=True):
                    board.put(index, it)
        for g, inside in groups.items():
            narrow = [index for index in inside if index not in wide[g]]
            if g not in failed and insert(narrow, self.weights, _TRIES, self.stop, self._across):
                self._taken(inside)
                failed.add(g)
        return failed

    def _company(self, jobs: Iterable[int]) -> Company:
        return tuple(sorted((self.nesting.kind(index), self.nesting.berth(index).length) for index in jobs))

    def _remember(self, wide: Sequence[int]) -> None:
        """That the wide jobs of a group were not timed together."""
        company = self._company(wide)
        self.untimed[company] = max(self.period, self.untimed.get(company, 0))

    def _known(self, group: int) -> bool:
        """Whether the wide jobs of a group are such as were not timed together."""
        wide = [index for index in self.nesting.within((group,)) if self.target(index).links]
        return self.untimed.get(self._company(wide), 0) >= self.period

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
        """Share out the jobs of some groups that are not laid, each with another one, anew; returns which are not then.

        What two groups had stays where more of them would not be laid.
        """
        nesting, board = self.nesting, self.circle.board
        weights = {group: float(group in unlaid) for group in range(len(nesting.groups))}
        pairs = self._shared(nesting.pairs(weights))
        before = {pair: self._taken(jobs) for pair, (jobs, _) in pairs.items()}
        inside = {group: nesting.within((group,)) for pair in pairs for group in pair}
        failed = self._lay_groups(inside)
        for pair, (jobs, numbers) in pairs.items():
            if len(failed & pair) > len(unlaid & pair):
                self._taken(jobs)
                nesting.restore(jobs, numbers)
                failed = failed - pair | unlaid & pair
                if all(board.admits(laid) for _, laid in before[pair]):
                    for index, laid in before[pair]:
                        board.put(index, laid)
                else:
                    # Another pair may have taken what both have between racks.
                    failed |= pair
        return unlaid - set().union(*pairs) | failed

    def _shared(self, pairs: Sequence[frozenset[int]]) -> dict[frozenset[int], tuple[list[int], list[int]]]:
        """Share out the jobs of pairs of groups anew; returns, with where they were, those whose loads permit it."""
        nesting = self.nesting
        jobs = {pair: nesting.within(pair) for pair in pairs}
        before = {pair: nesting.numbers(jobs[pair]) for pair in pairs}
        best, least = dict(before), dict.fromkeys(pairs, float("inf"))
        for _ in range(_SHARINGS):
            seeking = [pair for pair in pairs if least[pair] > (nesting.target + self.period) / 2]
            nesting.share({pair: jobs[pair] for pair in seeking})
            for pair in seeking:
                fullest = nesting.fullest(pair) * nesting.target
                if fullest < least[pair] and not any(map(self._known, pair)):
                    best[pair], least[pair] = nesting.numbers(jobs[pair]), fullest
        fitting = [pair for pair in pairs if least[pair] <= self.period]
        for pair in pairs:
            nesting.restore(jobs[pair], (best if pair in fitting else before)[pair])
        return {pair: (jobs[pair], before[pair]) for pair in fitting}

    def _taken(self, jobs: Sequence[int]) -> list[tuple[int, Laid]]:
        """Take jobs off the board, as far as they are there."""
        board = self.circle.board
        return [(index, board.take(index)) for index in jobs if board.laid[index] is not None]
