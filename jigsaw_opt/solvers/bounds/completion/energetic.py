"""Energetic reasoning: intervals of time that are too narrow for all the work that lies in them.

If a job is complete at ``e``, at least ``W - early(s) - late(e - t)`` of its work on a resource lies between ``s``
and ``t``: all but what is done by ``s`` at best and what the time from ``t`` to ``e`` has room for. The resource does
no more than its capacity times ``t - s`` (Baptiste, Le Pape and Nuijten, "Satisfiability tests and time-bound
adjustments for cumulative scheduling problems", 1999). With a multiplier for each interval this relaxes to one small
problem for each job: which completion time is the cheapest. The multipliers come from the convexified master, a linear
program over mixtures of completion times (Dantzig and Wolfe, 1960). The bound that they prove is added up in integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.linear import NO_ENTRIES, ProgramBuilder
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.bounds.completion.dual_bound import UNIT, CompletionCost, DualBound, DualTerm
from jigsaw_opt.solvers.bounds.completion.program import (
    CompletionProgram,
    Inequality,
    constants,
    prices_left,
    within_weights,
)
from jigsaw_opt.solvers.bounds.completion.shared_program import SharedProgram
from jigsaw_opt.solvers.bounds.completion.work_functions import profiles
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource
from jigsaw_opt.solvers.engines.highs import Ending, HighsEngine

if TYPE_CHECKING:
    from jigsaw_opt.solvers.bounds.completion.work_functions import Floats

_ROUNDS = 40
"""Largest number of times that the program is solved: the bound holds after each of them."""
_MOMENTS = 64
"""About the number of moments at which intervals begin and end: there are as many intervals as pairs of them."""
_NEW_INTERVALS = 8
"""Intervals of a resource that are added in a round: those that lack most capacity."""
_TOLERANCE = 1e-6
"""Share by which an interval must be too narrow, or a completion time cheaper, to count."""
_STEP_WORK = 3e-8
"""Seconds for one interval and completion time."""


class _EnergeticInterval(NamedTuple):
    """An interval of time on one of the resources."""

    resource: int
    start: int
    end: int


class _EnergeticResource:
    """A resource, and the work of jobs on it between any two moments."""

    def __init__(self, resource: Resource, job_data: Sequence[JobData]) -> None:
        self.capacity = resource.capacity
        pairs = enumerate(checking_deadline(zip(job_data, resource.demands, strict=True)))
        self.profiles = {k: both for k, (data, demand) in pairs if (both := profiles(data, demand))}
        self.work = {k: demand.work for k in self.profiles if (demand := resource.demands[k])}
        self.release = [data.job.release_us for data in job_data]

    def inside(self, job: int, start: int) -> int:
        """Return the work of a job that cannot be done by `start`."""
        return max(0, self.work[job] - self.profiles[job][0].at(start - self.release[job]))

    def too_narrow(self, mixture: Sequence[tuple[int, int, float]], moments: Floats) -> Floats:
        """Return by how much a mixture of completion times exceeds the capacity between any two moments."""
        import numpy as np

        # Rows are starts of intervals, columns are their ends.
        excess = -self.capacity * (moments[None, :] - moments[:, None])
        for job, end, share in checking_deadline(mixture):
            if job in self.profiles:
                early, late = self.profiles[job]
                left = self.work[job] - early.near(moments - self.release[job])
                excess = excess + share * np.maximum(0, left[:, None] - late.near(end - moments)[None, :])
        found: Floats = np.where(moments[None, :] > moments[:, None], excess, 0)
        return found


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    shared = context.shared(SharedProgram)
    for dual in energetic_bounds(shared.program, shared.resources, context.job_data, budget):
        if dual.value > known:
            known = dual.value
            yield shared.bound(dual, f"{shared.program.reason}, and windows of time")


ENERGETIC_INTERVALS = Relaxation("energetic_intervals", _bounds, frozenset({"weighted_completion"}), moves=True)
"""The relaxation registered as ``energetic_intervals``."""


def energetic_bounds(
    program: CompletionProgram, resources: Sequence[Resource], job_data: Sequence[JobData], budget: BoundBudget
) -> Iterator[DualBound]:
    """Yield bounds from intervals on all resources, together with the inequalities in use of a solved program."""
    energetic = [_EnergeticResource(resource, job_data) for resource in resources]
    master = _ConvexifiedMaster(program, energetic)
    moments = _moments(program, job_data)
    for _ in range(_ROUNDS):
        if budget.spent or not master.solve():
            return
        budget.charge(_STEP_WORK * master.steps(len(moments)))
        dual = master.dual()
        yield dual
        if not (master.add_intervals(moments) | master.add_completions(dual.completions)):
            return


def _moments(program: CompletionProgram, job_data: Sequence[JobData]) -> Floats:
    """Return releases, least and likely completion times, and an even grid between the first and the last of them."""
    import numpy as np

    known = sorted(
        {data.job.release_us for data in job_data} | set(program.own) | {int(end) for end in program.completions}
    )
    # Both halves of the moments are thinned to about `_MOMENTS`.
    step = -(-len(known) // _MOMENTS)
    grid = range(known[0], known[-1], max(1, (known[-1] - known[0]) // _MOMENTS))
    return np.array(sorted({*known[::step], *grid}), dtype=float)


class _ConvexifiedMaster:
    """The linear program over mixtures of completion times of each job."""

    def __init__(self, program: CompletionProgram, energetic: Sequence[_EnergeticResource]) -> None:
        self._weights, self._own, self._energetic = program.weights, program.own, energetic
        self._rows = program.used()
        self._intervals: dict[_EnergeticInterval, None] = {}
        self._completions: dict[tuple[int, int], None] = {}
        self._scale = float(max(1, *self._own))
        builder = ProgramBuilder()
        # Rows in order: the shares of the completion times of each job add up to 1; the inequalities, scaled to factors
        # of sum 1; and the intervals, as they are added. Times are in units of `_scale`.
        builder.add_rows(NO_ENTRIES, [1.0] * len(self._own), 1.0)
        builder.add_rows(NO_ENTRIES, [self._least(row) for row in self._rows], inf)
        self._engine = HighsEngine(builder.program())
        # So late a completion time loads hardly any interval, which lets the first program have a solution.
        latest = 4 * max(*map(int, program.completions), *self._own)
        for job, own in enumerate(checking_deadline(self._own)):
            for end in {own, int(program.completions[job]), latest}:
                self._add_completion(job, end)

    def steps(self, moments: int) -> int:
        """Return the size of the search for intervals."""
        return moments * moments * len(self._energetic) * len(self._completions)

    def solve(self) -> bool:
        """Find the best mixture and its multipliers; return whether there is one."""
        self._found = self._engine.run()
        return self._found.ending is Ending.SOLVED

    def dual(self) -> DualBound:
        """Return the bound that the multipliers prove, in exact integers."""
        rows, intervals = self._shares()
        capacity = sum(share * self._capacity(interval) for interval, share in intervals)
        prices = enumerate(prices_left(self._weights, rows))
        costs = [CompletionCost(self._own[job], price, self._dual_terms(job, intervals)) for job, price in prices]
        return DualBound({**constants(rows), "capacity of energetic intervals": -capacity}, costs)

    def add_completions(self, completions: Sequence[int]) -> bool:
        """Add the cheapest completion time that the last bound found for each job; return whether one was new."""
        fresh = [both for both in enumerate(completions) if both not in self._completions]
        for job, end in checking_deadline(fresh):
            self._add_completion(job, end)
        return bool(fresh)

    def add_intervals(self, moments: Floats) -> bool:
        """Add the intervals that the mixture fills most beyond their capacity; return whether there were any."""
        import numpy as np

        shares = zip(self._completions, self._found.values.tolist(), strict=True)
        mixture = [(job, end, share) for (job, end), share in shares if share > _TOLERANCE]
        before = len(self._intervals)
        for number, resource in enumerate(self._energetic):
            excess = resource.too_narrow(mixture, moments) / resource.capacity
            for place in np.argsort(-excess, axis=None, kind="stable")[:_NEW_INTERVALS]:
                start, end = np.unravel_index(int(place), excess.shape)
                if excess[start, end] > _TOLERANCE * self._scale:
                    self._add_interval(_EnergeticInterval(number, int(moments[start]), int(moments[end])))
        return len(self._intervals) > before

    def _shares(self) -> tuple[list[tuple[Inequality, int]], list[tuple[_EnergeticInterval, int]]]:
        """Return the positive multipliers in parts of one over `UNIT`.

        They are scaled down where they take more than a job's weight.
        """
        duals = self._found.duals[len(self._own) :].tolist()
        rows = [
            (row, int(Fraction(dual) * UNIT / sum(row.factors.values())))
            for row, dual in zip(self._rows, duals, strict=False)
            if dual > 0
        ]
        intervals = [
            (interval, int(Fraction(-dual * self._scale) * UNIT / self._capacity(interval)))
            for interval, dual in zip(self._intervals, duals[len(self._rows) :], strict=True)
            # An interval limits its load from above, so its multiplier is not positive.
            if dual < 0
        ]
        # Intervals take nothing of the weights: their charge depends on the completion time, and `CompletionCost` has
        # it exactly.
        return within_weights(self._weights, rows), intervals

    def _dual_terms(self, job: int, intervals: Sequence[tuple[_EnergeticInterval, int]]) -> list[DualTerm]:
        """Return the terms that charge a job for intervals with their multipliers."""
        return [
            DualTerm(interval.end, inside, share, resource.profiles[job][1])
            for interval, share in intervals
            if job in (resource := self._energetic[interval.resource]).profiles
            and (inside := resource.inside(job, interval.start))
        ]

    def _add_completion(self, job: int, end: int) -> None:
        entries = [(job, 1.0)]
        for number, row in enumerate(self._rows, len(self._own)):
            if job in row.factors:
                factor = Fraction(row.factors[job], sum(row.factors.values()))
                entries.append((number, float(factor * end) / self._scale))
        for number, interval in enumerate(self._intervals, len(self._own) + len(self._rows)):
            if load := self._load(job, end, interval):
                entries.append((number, load))
        places, values = zip(*entries, strict=True)
        cost = self._weights[job] * end / self._scale
        self._engine.add_column(cost, places, values)
        self._completions[job, end] = None

    def _add_interval(self, interval: _EnergeticInterval) -> None:
        if interval not in self._intervals:
            loads = [(number, self._load(job, end, interval)) for number, (job, end) in enumerate(self._completions)]
            entries = [(number, load) for number, load in loads if load]
            # Loads are shares of the interval's capacity, so that all rows are of one size whatever the length of the
            # interval.
            self._engine.add_row(-inf, 1.0, [number for number, _ in entries], [load for _, load in entries])
            self._intervals[interval] = None

    def _capacity(self, interval: _EnergeticInterval) -> int:
        return self._energetic[interval.resource].capacity * (interval.end - interval.start)

    def _load(self, job: int, end: int, interval: _EnergeticInterval) -> float:
        """Return the share of an interval that a job fills if it is complete at `end`."""
        resource = self._energetic[interval.resource]
        if job not in resource.profiles:
            return 0.0
        work = max(0, resource.inside(job, interval.start) - resource.profiles[job][1].at(end - interval.end))
        return work / self._capacity(interval)

    def _least(self, row: Inequality) -> float:
        return float(Fraction(row.least, sum(row.factors.values()))) / self._scale
