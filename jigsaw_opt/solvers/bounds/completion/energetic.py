"""Bounds on the weighted sum of ends from windows of time that are too narrow for all the work in them.

If a job ends at ``e``, at least ``W - early(s) - late(e - t)`` of its work on a resource lies between ``s`` and ``t``:
all but what is done by ``s`` at best and what the time from ``t`` to its end has room for. The resource does no
more than its capacity times ``t - s``. With a multiplier for each window this relaxes to one small problem for each
job: which end is the cheapest. The multipliers come from a linear program over mixtures of ends, and the bound that
they prove is added up in integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.linear import NO_ENTRIES, ProgramBuilder
from jigsaw_opt.problem.clock import looking
from jigsaw_opt.solvers.bounds.budget import Budget
from jigsaw_opt.solvers.bounds.completion.dual_bound import UNIT, CompletionCost, DualBound, DualTerm
from jigsaw_opt.solvers.bounds.completion.program import CompletionProgram, Inequality, prices_left, within_weights
from jigsaw_opt.solvers.bounds.completion.work_functions import profiles
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.resources import Resource
from jigsaw_opt.solvers.engines.highs import HighsEngine
from jigsaw_opt.solvers.engines.mip import Ending

if TYPE_CHECKING:
    from jigsaw_opt.solvers.bounds.completion.work_functions import Floats

__all__ = ["energetic_bounds"]

_ROUNDS = 40
"""Most times that the program is solved."""
_MOMENTS = 64
"""Windows begin and end at about so many moments."""
_NEW_WINDOWS = 8
"""Windows of a resource that are added in a round: the ones that are most too narrow."""
_TOLERANCE = 1e-6
"""Share by which a window must be too narrow, or an end cheaper, to count."""
_STEP_WORK = 3e-8
"""Seconds for one window and end."""


class _EnergeticInterval(NamedTuple):
    """A window of time on one of the resources."""

    view: int
    start: int
    end: int


class _EnergeticResource:
    """A resource, seen through windows.

    Parameters
    ----------
    resource
        Capacity and demands.
    job_data
        The jobs.
    """

    def __init__(self, resource: Resource, job_data: Sequence[JobData]) -> None:
        self.capacity = resource.capacity
        pairs = enumerate(looking(zip(job_data, resource.demands, strict=True)))
        self.profiles = {k: both for k, (data, demand) in pairs if (both := profiles(data, demand))}
        self.work = {k: demand.work for k in self.profiles if (demand := resource.demands[k])}
        self.release = [data.job.release_us for data in job_data]

    def inside(self, job: int, start: int) -> int:
        """Work of a job that is not done by `start`."""
        return max(0, self.work[job] - self.profiles[job][0].at(start - self.release[job]))

    def too_narrow(self, mixture: Sequence[tuple[int, int, float]], moments: Floats) -> Floats:
        """How much of a mixture of ends, as (job, end, share), is too much for the windows between two moments each."""
        import numpy as np

        excess = -self.capacity * (moments[None, :] - moments[:, None])
        for job, end, share in looking(mixture):
            if job in self.profiles:
                early, late = self.profiles[job]
                left = self.work[job] - early.near(moments - self.release[job])
                excess = excess + share * np.maximum(0, left[:, None] - late.near(end - moments)[None, :])
        found: Floats = np.where(moments[None, :] > moments[:, None], excess, 0)
        return found


def energetic_bounds(
    program: CompletionProgram, resources: Sequence[Resource], job_data: Sequence[JobData], budget: Budget
) -> Iterator[DualBound]:
    """Bounds from windows on all resources, together with the inequalities in use of a solved program.

    Parameters
    ----------
    program
        Gives the weights, the least ends, and what is known of the ends.
    resources, job_data
        What the jobs ask for, and the jobs.
    budget
        Asked between cut_rounds.
    """
    views = [_EnergeticResource(resource, job_data) for resource in resources]
    mixture = _ConvexifiedMaster(program, views)
    moments = _moments(program, job_data)
    for _ in range(_ROUNDS):
        if budget.spent or not mixture.solve():
            return
        budget.charge(_STEP_WORK * mixture.steps(len(moments)))
        proof = mixture.proof()
        yield proof
        if not (mixture.add_windows(moments) | mixture.add_ends(proof.ends)):
            return


def _moments(program: CompletionProgram, job_data: Sequence[JobData]) -> Floats:
    """Releases, least and likely ends, and an even grid between the first and the last of them."""
    import numpy as np

    known = sorted({data.job.release_us for data in job_data} | set(program.own) | {int(end) for end in program.ends})
    step = -(-len(known) // _MOMENTS)
    grid = range(known[0], known[-1], max(1, (known[-1] - known[0]) // _MOMENTS))
    return np.array(sorted({*known[::step], *grid}), dtype=float)


class _ConvexifiedMaster:
    """The linear program over mixtures of ends of each job.

    Parameters
    ----------
    program
        Weights, least ends, inequalities.
    views
        The resources.
    """

    def __init__(self, program: CompletionProgram, views: Sequence[_EnergeticResource]) -> None:
        self._weights, self._own, self._views = program.weights, program.own, views
        self._rows = program.used()
        self._windows: dict[_EnergeticInterval, None] = {}
        self._ends: dict[tuple[int, int], None] = {}
        self._scale = float(max(1, *self._own))
        builder = ProgramBuilder()
        builder.add_rows(NO_ENTRIES, [1.0] * len(self._own), 1.0)
        builder.add_rows(NO_ENTRIES, [self._least(row) for row in self._rows], inf)
        self._engine = HighsEngine(builder.program())
        latest = 4 * max(*map(int, program.ends), *self._own)
        for job, own in enumerate(looking(self._own)):
            for end in {own, int(program.ends[job]), latest}:
                self._add_end(job, end)

    def steps(self, moments: int) -> int:
        """Size of the search for windows."""
        return moments * moments * len(self._views) * len(self._ends)

    def solve(self) -> bool:
        """Find the best mixture and its multipliers; whether there is one."""
        self._found = self._engine.run()
        return self._found.ending is Ending.SOLVED

    def proof(self) -> DualBound:
        """What the multipliers prove, exactly."""
        rows, windows = self._shares()
        constant = sum(share * row.least for row, share in rows)
        constant -= sum(share * self._capacity(window) for window, share in windows)
        prices = prices_left(self._weights, rows)
        return DualBound(
            constant,
            [CompletionCost(self._own[job], price, self._dual_terms(job, windows)) for job, price in enumerate(prices)],
        )

    def add_ends(self, ends: Sequence[int]) -> bool:
        """Add an end of each job, the cheapest one that the last proof found; says whether there was a new one."""
        fresh = [both for both in enumerate(ends) if both not in self._ends]
        for job, end in looking(fresh):
            self._add_end(job, end)
        return bool(fresh)

    def add_windows(self, moments: Floats) -> bool:
        """Add the windows that the mixture fills most beyond their capacity; says whether there were any."""
        import numpy as np

        shares = zip(self._ends, self._found.values.tolist(), strict=True)
        mixture = [(job, end, share) for (job, end), share in shares if share > _TOLERANCE]
        before = len(self._windows)
        for number, view in enumerate(self._views):
            excess = view.too_narrow(mixture, moments) / view.capacity
            for place in np.argsort(-excess, axis=None, kind="stable")[:_NEW_WINDOWS]:
                start, end = np.unravel_index(int(place), excess.shape)
                if excess[start, end] > _TOLERANCE * self._scale:
                    self._add_window(_EnergeticInterval(number, int(moments[start]), int(moments[end])))
        return len(self._windows) > before

    def _shares(self) -> tuple[list[tuple[Inequality, int]], list[tuple[_EnergeticInterval, int]]]:
        """Positive multipliers in parts of one over `UNIT`, scaled down where they take more than a job's weight."""
        duals = self._found.duals[len(self._own) :].tolist()
        rows = [
            (row, int(Fraction(dual) * UNIT / sum(row.factors.values())))
            for row, dual in zip(self._rows, duals, strict=False)
            if dual > 0
        ]
        windows = [
            (window, int(Fraction(-dual * self._scale) * UNIT / self._capacity(window)))
            for window, dual in zip(self._windows, duals[len(self._rows) :], strict=True)
            if dual < 0
        ]
        return within_weights(self._weights, rows), windows

    def _dual_terms(self, job: int, windows: Sequence[tuple[_EnergeticInterval, int]]) -> list[DualTerm]:
        """What a job pays for windows with their multipliers."""
        return [
            DualTerm(window.end, inside, share, view.profiles[job][1])
            for window, share in windows
            if job in (view := self._views[window.view]).profiles and (inside := view.inside(job, window.start))
        ]

    def _add_end(self, job: int, end: int) -> None:
        entries = [(job, 1.0)]
        for number, row in enumerate(self._rows, len(self._own)):
            if job in row.factors:
                factor = Fraction(row.factors[job], sum(row.factors.values()))
                entries.append((number, float(factor * end) / self._scale))
        for number, window in enumerate(self._windows, len(self._own) + len(self._rows)):
            if load := self._load(job, end, window):
                entries.append((number, load))
        places, values = zip(*entries, strict=True)
        cost = self._weights[job] * end / self._scale
        self._engine.add_column(cost, places, values)
        self._ends[job, end] = None

    def _add_window(self, window: _EnergeticInterval) -> None:
        if window not in self._windows:
            loads = [(number, self._load(job, end, window)) for number, (job, end) in enumerate(self._ends)]
            entries = [(number, load) for number, load in loads if load]
            self._engine.add_row(-inf, 1.0, [number for number, _ in entries], [load for _, load in entries])
            self._windows[window] = None

    def _capacity(self, window: _EnergeticInterval) -> int:
        return self._views[window.view].capacity * (window.end - window.start)

    def _load(self, job: int, end: int, window: _EnergeticInterval) -> float:
        """Share of a window that a job fills if it ends at `end`."""
        view = self._views[window.view]
        if job not in view.profiles:
            return 0.0
        work = max(0, view.inside(job, window.start) - view.profiles[job][1].at(end - window.end))
        return work / self._capacity(window)

    def _least(self, row: Inequality) -> float:
        return float(Fraction(row.least, sum(row.factors.values()))) / self._scale
