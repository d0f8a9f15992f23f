"""Plans of shorter periods on a circle: jobs laid one by one or group by group, where they are or wherever they fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jigsaw_opt.problem.timetable import Timetable
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.cyclic.candidate_table import Berths, Catalogue, Fits, Given
from jigsaw_opt.solvers.search.cyclic.group_insertion import Company, Grouped
from jigsaw_opt.solvers.search.cyclic.hierarchies import Nestings
from jigsaw_opt.solvers.search.cyclic.hierarchy import Nesting
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import Circle
from jigsaw_opt.solvers.search.loads import fullest_us

__all__ = ["PeriodSearch"]

_ATTEMPTS = 4
"""Periods tried, by bisection between what the placement allows and the best one."""
_SHORT = 0.7
"""Share of the time of all links from which on the transfers are what is short."""
_SHORTER = {"grouped": 0.65, "wherever": 0.2}
_LEAST_SHORTER, _MOST_SHORTER = 0.01, 0.5
"""Share of the room between bound and objective by which a period tried is shorter: the first, least and largest."""
_MOST_FAILURES, _MOST_AFTER_SUCCESS = 2, {"grouped": 5, "wherever": 2}
"""After how many periods in vain something else is tried: before any has been reached this way, and after."""
_TRIES_A_JOB = 4
"""How often room is made for jobs until a period is given up."""
_WARM = 0.75
"""How often jobs are first offered the spots at which all had room at a longer period."""
_EXCHANGES_A_GROUP, _LEAST_EXCHANGES = 4, 12
"""How often groups exchange jobs in vain until a period is given up."""
_WEIGHTS = ("exchange", "length", "links")
_WORK_OF_NESTING, _WORK_OF_LAYING = 4e-7, 1e-5
"""Deterministic seconds that a step of a nesting, and a piece that is laid, count as."""


class PeriodSearch:
    """Periods tried below the best one.

    Parameters
    ----------
    context
        The search.
    """

    def __init__(self, context: Context) -> None:
        self.control, self.ground, self.engine = context.control, context.ground, context.engine
        self.draw, self.budget = context.rng, context.budget
        self.catalogue = Catalogue(context.ground)
        self._nestings = Nestings(self._nested, context.budget.over)
        self._lain: Sequence[PlacedJob] | None = None
        self._untimed: dict[Company, int] = {}
        self._fruitful: set[str] = set()
        self._shorter = dict(_SHORTER)

    def short_of_links(self) -> bool:
        """Whether the transfers of all jobs, each on as few links as may be, take most of the time of all links."""
        berths = (self.catalogue.of(index) for index in range(len(self.ground.pieces.jobs)))
        least = sum(min(berth.exchange * len(berth.alone.links) for berth in own) for own in berths if own)
        return least > _SHORT * self.ground.layout.links * self.control.bound

    def around(self, spots: Sequence[PlacedJob]) -> None:
        """Jobs laid one by one at a shorter period, at a placement."""
        objective = self.control.objective
        if objective is None:
            return
        low = max(self.control.bound, fullest_us(spots))
        for _ in range(_ATTEMPTS):
            period = (low + objective) // 2
            if period >= objective or self.budget.over():
                return
            if self._laid(Given(spots), self._weights(spots, self.draw.choice(_WEIGHTS)), period):
                objective = period
            else:
                low = period + 1

    def in_groups(self) -> None:
        """Jobs laid group by group at a shorter period, with exchanges between groups."""
        self._shorten("grouped", self._laid_in_groups)

    def _nested(self, target: int, longest: int) -> Nesting:
        """Jobs assigned to groups of servers and blocks in these."""
        threads = self.control.options.workers
        return Nesting(self.catalogue, target, longest, self.draw, threads, self._count_nesting)

    def _count_nesting(self, steps: int) -> None:
        self.budget.spend(steps * _WORK_OF_NESTING)

    def _laid_in_groups(self, period: int) -> bool:
        """Lay all jobs where the nesting has them, which may exchange some; says whether all found room."""
        nesting = self._nestings.fitting(period, max(1, self.control.bound))
        if nesting is None:
            return False
        spots = [nesting.berth(index).alone for index in range(len(self.ground.pieces.jobs))]
        weights = self._weights(spots, "links")
        grouped = Grouped(
            self.catalogue, nesting, period, self.draw, self.engine, weights, self._laid_one, self._untimed
        )
        patience = max(_LEAST_EXCHANGES, _EXCHANGES_A_GROUP * len(nesting.groups))
        return self._laid_as(grouped.lay(patience), grouped.circle)

    def wherever(self) -> None:
        """Jobs laid one by one at a shorter period, each where it fits best."""
        self._shorten("wherever", self._laid_wherever)

    def _laid_wherever(self, period: int) -> bool:
        before = self._lain if self.draw.random() < _WARM else None
        berths = Fits(self.catalogue, period, self.draw, before)
        return self._laid(berths, self._weights(berths.quickest(), "links"), period)

    def _shorten(self, name: str, lay: Callable[[int], bool]) -> None:
        """Try shorter periods: where all jobs found room shorter still, else not as short."""
        failures = 0
        while failures < (_MOST_AFTER_SUCCESS[name] if name in self._fruitful else _MOST_FAILURES):
            if self.budget.over():
                return
            objective, bound = self.control.objective, self.control.bound
            if objective is None:
                return
            shorter = self._shorter[name]
            if lay(objective - max(1, round(shorter * (objective - bound)))):
                self._shorter[name] = min(_MOST_SHORTER, shorter * 2)
                self._fruitful.add(name)
            else:
                failures += 1
                self._shorter[name] = shorter / 3 if shorter > _LEAST_SHORTER else _SHORTER[name]

    def _laid(self, berths: Berths, weights: Sequence[float], period: int) -> bool:
        """Lay all jobs onto a circle, the heaviest first; says whether all found room."""
        circle = Circle(self.ground, berths, period, self.draw)
        return self._laid_as(
            circle.lay(range(len(weights)), weights, _TRIES_A_JOB * len(weights), self._laid_one), circle
        )

    def _laid_as(self, plan: Timetable | None, circle: Circle) -> bool:
        """Offer a plan, if it is one, and remember where the jobs are."""
        if plan is not None:
            self.control.offer(plan)
            self._lain = [laid.spot for laid in circle.board.laid if laid is not None]
        return plan is not None

    def _laid_one(self) -> bool:
        """Count a job that was laid; says whether to stop."""
        size = (self.ground.pieces.blocks + self.ground.pieces.transfers) // len(self.ground.pieces.jobs)
        return self.budget.spend(size * _WORK_OF_LAYING)

    def _weights(self, spots: Sequence[PlacedJob], kind: str) -> list[float]:
        """Length of exchanges, or of jobs, or that times the links; blurred by chance."""
        weights = []
        for spot in spots:
            length, links = spot.iteration_us * spot.job.iterations, 1 + len(spot.links)
            weight = {"exchange": sum(map(sum, spot.exchange)), "length": length, "links": length * links}[kind]
            weights.append(weight * self.draw.uniform(0.9, 1.1))
        return weights
