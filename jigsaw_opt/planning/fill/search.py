"""The search over iteration vectors: packing finds plans, and `auto` finds a plan of a vector or refutes it.

First jobs are packed into the foreground's plan. Where the instance is small, single jobs then get more iterations or
change them with one another, each vector put to `auto`. Where there are few vectors, the one that could still be best
is asked for again, longer each time, until none is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from jigsaw_opt.planning.fill.exact import ExactHoles
from jigsaw_opt.planning.fill.loads import Loads, Vector, is_monotone, restricted
from jigsaw_opt.planning.fill.neighbourhoods import PackingSearch
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solving import solving

_MOST_VECTORS = 4096
"""Up to this number of vectors, each one that could still be best is tried."""
_MOST_OPERATIONS = 1000
"""`auto` is asked where no plan has more blocks and transfers."""
_PACKING, _EXACT = 0.3, 0.5
"""Shares of the limits that packing, and the integer program of the holes, may take where more comes after them."""
_HALVINGS = 5
"""The first step of a job's iterations is the largest number of any job, halved so often; smaller steps follow."""
_ATTEMPT = 0.05
"""Share of the limits for a vector, where nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A vector with its plan."""

    vector: Vector
    value: int
    plan: Plan

    @property
    def rate(self) -> Fraction:
        """Weighted iterations a microsecond."""
        return Fraction(self.value, self.plan.objective)


class VectorSearch:
    """A search for the best vector.

    `loads`: loads, caps and the period that is allowed. `kept`: iterations of foreground jobs by name.
    """

    def __init__(self, loads: Loads, alone: Plan, kept: dict[str, int], limits: Limits) -> None:
        self.loads, self.kept, self._limits = loads, kept, limits
        nothing = (0,) * len(loads.caps)
        self.best = Filled(nothing, 0, alone)
        self._needed, self._shortest_us = loads.least_needed()
        self._least_us: dict[Vector, int] = {}
        self._open: dict[Vector, int] = {}
        self._asked = 0
        background = [job for job in loads.instance.jobs if job.name not in kept]
        self._monotone = all(map(is_monotone, background))
        own = compile_instance(loads.instance)
        sizes = {job.name: len(job.blocks) + len(job.transfers) for job in own.jobs}
        sizes |= {graph.job.name: graph.size for graph in own.task_graphs}
        most = kept | dict(zip(loads.background, loads.caps, strict=True))
        self._is_small = sum(most[name] * size for name, size in sizes.items()) <= _MOST_OPERATIONS
        self._holes = ExactHoles.of(loads, kept, alone)
        self._all = loads.vectors(_MOST_VECTORS)

    def run(self) -> None:
        """Search until the limits are over, or nothing better is left."""
        if self.is_refuted:
            return
        self._pack()
        self._fill_holes()
        if not self.keeps_rates:
            self._attempt(self._needed, _PACKING / _ATTEMPT)
        if self._is_small and self.best.rate < self.bound():
            self._hill_climb()
            self._exhaust()

    @property
    def keeps_rates(self) -> bool:
        """Whether the best plan keeps the least rates of all background jobs."""
        return self.loads.keeps_rates(self.best.vector, self.best.plan.objective)

    @property
    def is_refuted(self) -> bool:
        """Whether it is proven that no plan keeps all least rates within the allowed period."""
        if self._shortest_us > self.loads.allowed_us or not _covers(self.loads.caps, self._needed):
            return True
        return self._all is not None and all(self._least_period_us(v) > self.loads.longest_us(v) for v in self._all)

    def bound(self) -> Fraction:
        """Return weighted iterations a microsecond that no plan within the allowed period beats."""
        rate = self.loads.rate_bound() if self._holes is None else self._holes.bound
        return rate if self._all is None else min(rate, max(map(self._rate_bound, self._all)))

    def _pack(self) -> None:
        """Pack background jobs into the foreground's part of the best plan."""
        limits, only = self._limits, not self._is_small and self._holes is None
        foreground = self.best.plan.with_jobs(tuple(job for job in self.best.plan.jobs if job.name in self.kept))
        stop = limits.stop(1.0 if only else _PACKING)
        search = PackingSearch(self.loads, foreground, self.kept, limits.seed, stop, limits.late)
        search.run()
        limits.charge(limits.steps_share(search.steps))
        if not search.best.lacking and (search.best.rate > self.best.rate or not self.keeps_rates):
            self.best = Filled(search.vector, self.loads.value(search.vector), search.plan())

    def _fill_holes(self) -> None:
        """Solve the integer program of the holes, where the jobs are of this kind."""
        if self._holes is None or (self.keeps_rates and self.best.rate >= self._holes.bound):
            return
        limits, known = self._limits, self.best.plan
        (done,) = (job for job in known.jobs if job.name in self.kept)
        starts = [operation.start_us for operation in done.operations]
        work = self._holes.run(self.best.value, known.objective, starts, limits.before_checking(_EXACT))
        limits.charge(limits.work_share(work))
        if self._holes.best is not None:
            vector, plan = self._holes.best
            if self.loads.keeps_rates(vector, plan.objective):  # the program knows nothing of least rates
                self.best = Filled(vector, self.loads.value(vector), plan)

    def _hill_climb(self) -> None:
        """Change the vector by one or two jobs, as long as it gets better; then with longer attempts."""
        longer, before = 1.0, -1
        while before < self._asked and not self._limits.over:
            before = self._asked
            step = max(1, max(self.best.vector) >> _HALVINGS)
            while step:
                canonical = self.loads.canonical(self.best.vector)
                if not any(self._attempt(vector, longer) for vector in self._neighbours(canonical, step)):
                    step //= 2
            if self._all is not None:
                return
            self._attempt(self.best.vector, longer)
            self._pack()
            self._open.clear()
            longer *= 2

    def _neighbours(self, vector: Vector, step: int) -> Iterator[Vector]:
        """Yield vectors with more of one job; then one more of one job and one less of a job that is worth less."""
        weights, jobs = self.loads.weights, range(len(vector))
        for j in sorted(jobs, key=lambda j: (-weights[j], vector[j], j)):
            more = min(vector[j] + step, self.loads.caps[j])
            if more > vector[j]:
                yield (*vector[:j], more, *vector[j + 1 :])
        for j, other in product(jobs, jobs):
            if step == 1 and weights[j] > weights[other] and vector[other] and vector[j] < self.loads.caps[j]:
                yield tuple(k + (at == j) - (at == other) for at, k in enumerate(vector))

    def _exhaust(self) -> None:
        """Ask for every vector that could still be best, those asked for least often and of the best bound first."""
        tries: dict[Vector, int] = {}
        while self._all is not None and not self._limits.over:
            left = [vector for vector in self._all if self._rate_bound(vector) > self.best.rate]
            if not left:
                return
            vector = min(left, key=lambda candidate: (tries.get(candidate, 0), -self._rate_bound(candidate), candidate))
            tries[vector] = tries.get(vector, 0) + 1
            self._attempt(vector, 2.0 ** tries[vector], again=True)

    def _attempt(self, vector: Vector, longer: float = 1.0, again: bool = False) -> bool:
        """Ask for a plan of a vector that beats the best rate, and take it."""
        vector = self.loads.canonical(vector)
        limit = self._limit_us(vector)
        if (not again and self._is_open(vector, limit)) or self._least_period_us(vector) > limit or self._limits.over:
            return False
        self._asked += 1
        share = min(1.0, longer * _ATTEMPT)
        chosen = dict(zip(self.loads.background, vector, strict=True))
        part = replace(self._limits.part(share), target=limit)
        with solving(restricted(self.loads.instance, self.kept | chosen), "auto", part) as events:
            for event in events:
                if event.bound > limit:
                    events.cancel()
            result = events.result
        refuted = result.status is Status.INFEASIBLE
        self._least_us[vector] = self.loads.allowed_us + 1 if refuted else result.bound
        found = result.plan is not None and result.plan.objective <= limit
        decided = found or refuted or result.bound > limit
        self._limits.charge(share, decided)
        if found and result.plan is not None:
            self.best = Filled(vector, self.loads.value(vector), result.plan)
        elif not decided:
            self._open[vector] = limit
        return found

    def _is_open(self, vector: Vector, limit: int) -> bool:
        """Return whether no plan of these iterations, or of fewer, was found within a period, a guess."""
        return any(most >= limit and _covers(vector, less) for less, most in self._open.items())

    def _limit_us(self, vector: Vector) -> int:
        """Return the longest period within what is allowed at which a vector beats the best rate."""
        value = self.loads.value(vector)
        if not self.best.value:
            return self.loads.longest_us(vector) if value else 0
        return min(self.loads.longest_us(vector), ceil_div(value * self.best.plan.objective, self.best.value) - 1)

    def _least_period_us(self, vector: Vector) -> int:
        """Return the best bound of a vector's period: by loads, by its own solve, and by smaller vectors."""
        known: Mapping[Vector, int] = self._least_us
        if self._monotone:
            less = (us for covered, us in known.items() if _covers(vector, covered))
        else:
            less = (us for us in (known.get(vector),) if us is not None)
        return max([self.loads.least_period_us(vector), *less])

    def _rate_bound(self, vector: Vector) -> Fraction:
        least = self._least_period_us(vector)
        return Fraction(self.loads.value(vector), least) if least <= self.loads.longest_us(vector) else Fraction(0)


def _covers(vector: Vector, less: Vector) -> bool:
    """Return whether it has as many iterations of every job, or more."""
    return all(a <= b for a, b in zip(less, vector, strict=True))
