"""Energetic reasoning: intervals of time that are too narrow for all the work that lies in them.

If a job is complete at ``e``, at least ``W - early(s) - late(e - t)`` of its work on a resource lies between ``s``
and ``t``: all but what is done by ``s`` at best and what the time from ``t`` to ``e`` has room for. The resource does
no more than its capacity times ``t - s`` (Baptiste, Le Pape and Nuijten, "Satisfiability tests and time-bound
adjustments for cumulative scheduling problems", 1999). With a multiplier for each interval this relaxes to one small
problem for each job: which completion time is the cheapest. The multipliers come from the convexified master, a linear
program over mixtures of completion times (Dantzig and Wolfe, 1960), and before it is solved from Smith's order. The
bound that they prove is added up in integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.linear import NO_ENTRIES, ProgramBuilder
from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.bounds.completion.dual_bound import UNIT, CompletionCost, CostOfKinds, DualBound, DualTerm
from jigsaw_opt.solvers.bounds.completion.placement_kinds import (
    PlacementKind,
    kind_resources,
    placement_kinds,
    whole_jobs,
)
from jigsaw_opt.solvers.bounds.completion.program import (
    CompletionProgram,
    Inequality,
    constants,
    prices_left,
    row_arguments,
    within_weights,
)
from jigsaw_opt.solvers.bounds.completion.shared_program import SharedProgram
from jigsaw_opt.solvers.bounds.completion.work_functions import profiles
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
_FIRST_INTERVALS = 16
"""Intervals that Smith's order begins with, each longer by about the same share of the work."""
_TOLERANCE = 1e-6
"""Share by which an interval must be too narrow, or a completion time cheaper, to count."""
_STEP_WORK = 2e-8
"""Seconds for one interval and completion time."""
_TERM_WORK = 2.5e-5
"""Seconds for the charge of one kind of placement for one interval, at all its completion times."""


class _EnergeticInterval(NamedTuple):
    """An interval of time on one of the resources."""

    resource: int
    start: int
    end: int


class _EnergeticResource:
    """A resource, and the work of jobs on it between any two moments."""

    def __init__(self, resource: Resource, kinds: Sequence[PlacementKind]) -> None:
        self.capacity, self.fact = resource.capacity, resource.fact
        pairs = enumerate(checking_deadline(zip(kinds, resource.demands, strict=True)))
        self.profiles = {k: both for k, (kind, demand) in pairs if (both := profiles(kind.data, demand))}
        self.work = {k: demand.work for k in self.profiles if (demand := resource.demands[k])}
        self.release = [kind.data.job.release_us for kind in kinds]

    def least_work(self, kinds: Sequence[PlacementKind]) -> dict[int, int]:
        """Return the work of each job, of the kind that asks least of the resource."""
        least: dict[int, int] = {}
        for number, kind in enumerate(kinds):
            work = self.work.get(number, 0)
            least[kind.job] = min(least.get(kind.job, work), work)
        return least

    def inside(self, kind: int, start: int) -> int:
        """Return the work of a kind that cannot be done by `start`."""
        return max(0, self.work[kind] - self.profiles[kind][0].at(start - self.release[kind]))

    def too_narrow(self, mixture: Sequence[tuple[int, int, float]], moments: Floats) -> Floats:
        """Return by how much a mixture of completion times exceeds the capacity between any two moments."""
        import numpy as np

        # Rows are starts of intervals, columns are their ends.
        excess = -self.capacity * (moments[None, :] - moments[:, None])
        for kind, end, share in checking_deadline(mixture):
            if kind in self.profiles:
                early, late = self.profiles[kind]
                left = self.work[kind] - early.near(moments - self.release[kind])
                excess = excess + share * np.maximum(0, left[:, None] - late.near(end - moments)[None, :])
        found: Floats = np.where(moments[None, :] > moments[:, None], excess, 0)
        return found


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    shared = context.shared(SharedProgram)
    may_move = {job.name for job in context.operations.instance.moving_jobs}
    moving = any(data.job.name in may_move for data in context.job_data)
    kinds = whole_jobs(context) if moving else placement_kinds(context)
    resources = shared.resources if moving else kind_resources(context, kinds)
    for dual in energetic_bounds(shared.program, resources, kinds, budget):
        if dual.value > known:
            known = dual.value
            yield shared.bound(dual, f"{shared.program.reason}, and windows of time")


ENERGETIC_INTERVALS = Relaxation("energetic_intervals", _bounds, frozenset({"weighted_completion"}), moves=True)
"""The relaxation registered as ``energetic_intervals``."""


def energetic_bounds(
    program: CompletionProgram, resources: Sequence[Resource], kinds: Sequence[PlacementKind], budget: BoundBudget
) -> Iterator[DualBound]:
    """Yield bounds from intervals on all resources, together with the inequalities in use of a solved program."""
    energetic = [_EnergeticResource(resource, kinds) for resource in resources]
    horizon = max(
        *map(int, program.completions),
        *(kind.data.completion for kind in kinds),
        *(sum(each.least_work(kinds).values()) // each.capacity for each in energetic),
    )
    master = _ConvexifiedMaster(program, energetic, kinds, horizon)
    moments = _moments(program, kinds, horizon)
    if budget.spent:
        return
    yield master.dual()
    budget.charge(_TERM_WORK * master.terms)
    master.add_completions()
    for _ in range(_ROUNDS):
        if budget.spent or not master.solve():
            return
        dual = master.dual()
        budget.charge(_STEP_WORK * master.steps(len(moments)) + _TERM_WORK * master.terms)
        yield dual
        if not (master.add_intervals(moments) | master.add_completions()):
            return


def _moments(program: CompletionProgram, kinds: Sequence[PlacementKind], horizon: int) -> Floats:
    """Return releases, least and likely completion times, and an even grid from the first of them to the horizon."""
    import numpy as np

    known = sorted(
        {kind.data.job.release_us for kind in kinds} | set(program.own) | {int(end) for end in program.completions}
    )
    # Both halves of the moments are thinned to about `_MOMENTS`.
    step = -(-len(known) // _MOMENTS)
    grid = range(known[0], horizon, max(1, (horizon - known[0]) // _MOMENTS))
    return np.array(sorted({*known[::step], *grid, horizon}), dtype=float)


class _ConvexifiedMaster:
    """The linear program over mixtures of completion times of each job."""

    def __init__(
        self,
        program: CompletionProgram,
        energetic: Sequence[_EnergeticResource],
        kinds: Sequence[PlacementKind],
        horizon: int,
    ) -> None:
        self._weights, self._own, self._energetic, self._kinds = program.weights, program.own, energetic, kinds
        self._rows = program.used()
        self._intervals: dict[_EnergeticInterval, None] = {}
        self._corners: dict[tuple[int, _EnergeticInterval], frozenset[int]] = {}
        self._completions: dict[tuple[int, int], None] = {}
        self._scale = float(max(1, *self._own))
        builder = ProgramBuilder()
        # Rows in order: the shares of the completion times of each job add up to 1; the inequalities, scaled to factors
        # of sum 1; and the intervals, as they are added. Times are in units of `_scale`.
        builder.add_rows(NO_ENTRIES, [1.0] * len(self._own), 1.0)
        builder.add_rows(NO_ENTRIES, [self._least(row) for row in self._rows], inf)
        self._engine = HighsEngine(builder.program())
        # So late a completion time loads hardly any interval, which lets the first program have a solution.
        latest = 4 * horizon
        for number, kind in enumerate(checking_deadline(kinds)):
            own = kind.data.completion
            for end in {own, max(own, int(program.completions[kind.job])), latest}:
                self._add_completion(number, end)
        self._limits, self._multipliers = [inf] * len(self._own), [0.0] * len(self._rows)
        self._start_in_smiths_order()

    def steps(self, moments: int) -> int:
        """Return the size of the search for intervals."""
        return moments * moments * len(self._energetic) * len(self._mixture())

    def solve(self) -> bool:
        """Find the best mixture and its multipliers; return whether there is one."""
        self._found = self._engine.run()
        duals = self._found.duals.tolist()
        first = len(self._own) + len(self._rows)
        # An interval limits its load from above, so its multiplier in the program is not positive.
        self._limits = duals[: len(self._own)]
        self._multipliers = [*duals[len(self._own) : first], *(-dual for dual in duals[first:])]
        return self._found.ending is Ending.SOLVED

    def dual(self) -> DualBound:
        """Return the bound that the multipliers prove, in exact integers."""
        rows, intervals = self._shares()
        capacity = sum(share * self._capacity(interval) for interval, share in intervals)
        prices = prices_left(self._weights, rows)
        costs: list[CostOfKinds] = [CostOfKinds() for _ in prices]
        self._cheapest, self.terms = [], 0
        for number, kind in enumerate(checking_deadline(self._kinds)):
            terms = self._dual_terms(number, intervals)
            cost = CompletionCost(kind.data.completion, prices[kind.job], terms)
            self._cheapest.append(costs[kind.job].add(cost))
            self.terms += len(terms)
        amounts = {**constants(rows), "capacity of energetic intervals": -capacity}
        return DualBound(amounts, costs, row_arguments(rows), self._argument(intervals))

    def _argument(self, intervals: Sequence[tuple[_EnergeticInterval, int]]) -> Argument:
        """Return intervals with multipliers as fields of an argument."""
        used = list(dict.fromkeys(interval.resource for interval, _ in intervals))
        return {
            "resources": [self._energetic[number].fact for number in used],
            "intervals": [[used.index(each.resource), each.start, each.end, share] for each, share in intervals],
        }

    def add_completions(self) -> bool:
        """Add the cheapest completion times that the last bound found; return whether one was new."""
        fresh = [
            (number, end)
            for number, (value, end) in enumerate(self._cheapest)
            if (number, end) not in self._completions
            and value / UNIT / self._scale < self._limits[self._kinds[number].job] * (1 - _TOLERANCE)
        ]
        for kind, end in checking_deadline(fresh):
            self._add_completion(kind, end)
        return bool(fresh)

    def add_intervals(self, moments: Floats) -> bool:
        """Add the intervals that the mixture fills most beyond their capacity; return whether there were any."""
        import numpy as np

        mixture = self._mixture()
        before = len(self._intervals)
        for number, resource in enumerate(self._energetic):
            excess = resource.too_narrow(mixture, moments) / resource.capacity
            for place in np.argsort(-excess, axis=None, kind="stable")[:_NEW_INTERVALS]:
                start, end = np.unravel_index(int(place), excess.shape)
                if excess[start, end] > _TOLERANCE * self._scale:
                    self._add_interval(_EnergeticInterval(number, int(moments[start]), int(moments[end])))
        return len(self._intervals) > before

    def _mixture(self) -> list[tuple[int, int, float]]:
        """Return the kinds of placement and completion times that the solved program mixes, with their shares."""
        shares = zip(self._completions, self._found.values.tolist(), strict=True)
        return [(kind, end, share) for (kind, end), share in shares if share > _TOLERANCE]

    def _shares(self) -> tuple[list[tuple[Inequality, int]], list[tuple[_EnergeticInterval, int]]]:
        """Return the positive multipliers in parts of one over `UNIT`.

        They are scaled down where they take more than a job's weight.
        """
        rows = [
            (row, int(Fraction(value) * UNIT / sum(row.factors.values())))
            for row, value in zip(self._rows, self._multipliers, strict=False)
            if value > 0
        ]
        intervals = [
            (interval, int(Fraction(value * self._scale) * UNIT / self._capacity(interval)))
            for interval, value in zip(self._intervals, self._multipliers[len(self._rows) :], strict=True)
            if value > 0
        ]
        intervals = [(interval, share) for interval, share in intervals if share]
        # Intervals take nothing of the weights: their charge depends on the completion time, and `CompletionCost` has
        # it exactly.
        return within_weights(self._weights, rows), intervals

    def _start_in_smiths_order(self) -> None:
        """Add intervals with the prices of time that the busiest resource has if it does all work in Smith's order."""
        loads = [(resource.least_work(self._kinds), resource.capacity) for resource in self._energetic]
        if not loads:
            return
        number = max(range(len(loads)), key=lambda k: Fraction(sum(loads[k][0].values()), loads[k][1]))
        work, capacity = loads[number]
        start = min(kind.data.job.release_us for kind in self._kinds)
        done, falls, total = 0, 0, sum(work.values())
        # While a job runs, a unit of work that comes later by a microsecond costs its weight for each unit of its work.
        for job in sorted(filter(work.get, work), key=lambda job: Fraction(-self._weights[job], work[job])):
            before, done, falls = done, done + work[job], falls + self._weights[job]
            if before * _FIRST_INTERVALS // total < done * _FIRST_INTERVALS // total:
                interval = _EnergeticInterval(number, start, start + max(1, done // capacity))
                if interval not in self._intervals:
                    self._add_interval(interval)
                    self._multipliers.append(0.0)
                # Little work may end at the same moment as that before, whose interval is then the last one.
                self._multipliers[-1] += falls * self._capacity(interval) / capacity / self._scale
                falls = 0

    def _dual_terms(self, kind: int, intervals: Sequence[tuple[_EnergeticInterval, int]]) -> list[DualTerm]:
        """Return the terms that charge a kind of placement for intervals with their multipliers."""
        terms = []
        for interval, share in intervals:
            resource = self._energetic[interval.resource]
            if kind in resource.profiles and (inside := resource.inside(kind, interval.start)):
                late = resource.profiles[kind][1]
                if (kind, interval) not in self._corners:
                    self._corners[kind, interval] = frozenset(late.corners(inside))
                terms.append(DualTerm(interval.end, inside, share, late, self._corners[kind, interval]))
        return terms

    def _add_completion(self, kind: int, end: int) -> None:
        job = self._kinds[kind].job
        entries = [(job, 1.0)]
        for number, row in enumerate(self._rows, len(self._own)):
            if job in row.factors:
                factor = Fraction(row.factors[job], sum(row.factors.values()))
                entries.append((number, float(factor * end) / self._scale))
        for number, interval in enumerate(self._intervals, len(self._own) + len(self._rows)):
            if load := self._load(kind, end, interval):
                entries.append((number, load))
        places, values = zip(*entries, strict=True)
        cost = self._weights[job] * end / self._scale
        self._engine.add_column(cost, places, values)
        self._completions[kind, end] = None

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

    def _load(self, kind: int, end: int, interval: _EnergeticInterval) -> float:
        """Return the share of an interval that a job fills if it is complete at `end`."""
        resource = self._energetic[interval.resource]
        if kind not in resource.profiles:
            return 0.0
        work = max(0, resource.inside(kind, interval.start) - resource.profiles[kind][1].at(end - interval.end))
        return work / self._capacity(interval)

    def _least(self, row: Inequality) -> float:
        return float(Fraction(row.least, sum(row.factors.values()))) / self._scale
