"""How often each job runs its iterations in a common period.

With one common period jobs of 100 and 130 us alone both take 130. Here each job's iterations are done `a_j` times a
period; every vector of ratios is a cyclic instance of its own. The value of a plan is the mean over the jobs of
``T / (a_j * alone_j)``: by what factor their iterations are longer than alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from jigsaw_opt.errors import OutOfTimeError, UsageError
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.bounds.driver import lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve

Ratios = tuple[int, ...]
_MOST_VECTORS = 4_096
"""Vectors of ratios above which it is refused: each needs a bound, and many of them a solve."""
_FIRST, _ATTEMPT = 0.2, 0.02
"""Shares of the limits for the plan of the common period, and for another vector at first."""
_SMALL = 1e-9
"""Difference of two mean slowdowns that is rounding."""


@dataclass(frozen=True, slots=True)
class RatioPlan:
    """Ratios with a checked plan.

    `ratios`: for each job, how often its iterations are done in a period. `instance, plan`: the instance with so many
    iterations, and its plan. `slowdowns`: for each job, ``T / (a_j * alone_j)``.
    """

    ratios: Ratios
    instance: Instance
    plan: Plan
    slowdowns: tuple[float, ...]

    @property
    def value(self) -> float:
        """Mean slow-down."""
        return sum(self.slowdowns) / len(self.slowdowns)


@dataclass(frozen=True, slots=True)
class RatioResult:
    """The result of the search over ratios.

    `plain`: all ratios 1: the common period. `plain_bound`: no plan with these ratios has a smaller value. `bound`: no
    plan with ratios up to the largest allowed has a smaller value.
    """

    plain: RatioPlan
    plain_bound: float
    best: RatioPlan
    bound: float

    @property
    def status(self) -> Literal["optimal", "feasible"]:
        """``optimal`` where no ratios up to the largest allowed are better."""
        return "optimal" if self.best.value <= self.bound + _SMALL else "feasible"


def with_ratios(instance: Instance, ratios: Iterable[int]) -> Instance:
    """Return the instance in which each job does its iterations a number of times in a period."""
    jobs = (altered(job, iterations=job.iterations * a) for job, a in zip(instance.jobs, ratios, strict=True))
    return altered(instance, jobs=tuple(jobs))


def best_ratios(
    instance: Instance,
    alone_us: Sequence[float],
    options: Options,
    most: int = 4,
    start: Plan | None = None,
) -> RatioResult:
    """Search the ratios up to `most` of the least mean slow-down.

    The best ratios and the common period, each with a bound; values are mean slow-downs.

    `alone_us`: for each job, the time of its iterations in a period where it is alone.
    """
    if most ** len(instance.jobs) > _MOST_VECTORS:
        raise UsageError(
            f"ratios up to {most} of {len(instance.jobs)} jobs are more than {_MOST_VECTORS} vectors", code="too-large"
        )
    search = _RatioSearch(instance, alone_us, Limits.of(options, "a search of ratios"))
    plain = search.first(start)
    plain_bound = search.bounds[plain.ratios]
    search.enter(most)
    search.run()
    return RatioResult(plain, plain_bound, search.best, search.bound())


class _RatioSearch:
    """Vectors are solved in the order of how often they have been tried, then of their bounds."""

    def __init__(self, instance: Instance, alone_us: Sequence[float], limits: Limits) -> None:
        self.instance, self.alone_us, self.limits = instance, tuple(alone_us), limits
        self.bounds: dict[Ratios, float] = {}
        self.tries: dict[Ratios, int] = {}
        self.best: RatioPlan

    def first(self, start: Plan | None) -> RatioPlan:
        """Return the common period, of a plan at hand or solved with ten times the time of an attempt."""
        ones = (1,) * len(self.alone_us)
        self.bounds[ones] = self._value(ones, lower_bound(compile_instance(self.instance)).value)
        solved = self._attempt(ones, _FIRST) if start is None or not self.limits.over else None
        found = [result for result in (solved, self._of(ones, self.instance, start)) if result is not None]
        if not found:
            raise OutOfTimeError("no plan was found within the limits")
        self.best = min(found, key=lambda result: result.value)
        return self.best

    def enter(self, most: int) -> None:
        """List all vectors without a common divisor, each with the bound of its longest job alone."""
        single = [[self._single_us(number, a) for a in range(1, most + 1)] for number in range(len(self.alone_us))]
        for ratios in product(range(1, most + 1), repeat=len(self.alone_us)):
            if math.gcd(*ratios) == 1 and ratios not in self.bounds:
                longest = max(row[a - 1] for row, a in zip(single, ratios, strict=True))
                self.bounds[ratios] = self._value(ratios, longest)

    def run(self) -> None:
        """Solve until no vector could be better, or the limits are over; first the bound of all jobs together."""
        bounded: set[Ratios] = set()
        while not self.limits.over:
            left = [ratios for ratios in self.bounds if self._is_open(ratios)]
            if not left:
                return
            ratios = min(left, key=lambda vector: (self.tries.get(vector, 0), self.bounds[vector], vector))
            if ratios not in bounded:
                bounded.add(ratios)
                least = lower_bound(compile_instance(with_ratios(self.instance, ratios))).value
                self.bounds[ratios] = max(self.bounds[ratios], self._value(ratios, least))
                continue
            found = self._attempt(ratios, _ATTEMPT * 2.0 ** self.tries.get(ratios, 0))
            if found is not None and found.value < self.best.value - _SMALL:
                self.best = found

    def _single_us(self, number: int, ratio: int) -> int:
        """Return a period below which one job cannot do its iterations so often."""
        job = self.instance.jobs[number]
        alone = altered(self.instance, jobs=(altered(job, iterations=job.iterations * ratio),))
        return lower_bound(compile_instance(alone)).value

    def bound(self) -> float:
        """Return a bound: no vector has a plan of a smaller value."""
        return min(self.best.value, *self.bounds.values())

    def _is_open(self, ratios: Ratios) -> bool:
        return self.bounds[ratios] < self.best.value - _SMALL

    def _value(self, ratios: Ratios, period_us: int) -> float:
        slowdowns = (period_us / (a * alone) for a, alone in zip(ratios, self.alone_us, strict=True))
        return sum(slowdowns) / len(ratios)

    def _attempt(self, ratios: Ratios, share: float) -> RatioPlan | None:
        self.tries[ratios] = self.tries.get(ratios, 0) + 1
        instance = with_ratios(self.instance, ratios)
        share = min(1.0, share)
        result = solve(instance, "auto", self.limits.part(share))
        self.limits.charge(share, result.status is Status.OPTIMAL)
        infeasible = result.status is Status.INFEASIBLE
        proven = math.inf if infeasible else self._value(ratios, result.bound)
        self.bounds[ratios] = max(self.bounds[ratios], proven)
        return self._of(ratios, instance, result.plan)

    def _of(self, ratios: Ratios, instance: Instance, plan: Plan | None) -> RatioPlan | None:
        if plan is None:
            return None
        slowdowns = (plan.objective / (a * us) for a, us in zip(ratios, self.alone_us, strict=True))
        return RatioPlan(ratios, instance, plan, tuple(slowdowns))
