"""Large neighbourhoods: which parts of a plan CP-SAT times anew, and for how long."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.moves.repair_model import RepairModel

_PERIODS = 4
"""Periods tried in vain on a cyclic horizon: the last one is within a sixteenth of the room below the incumbent's."""
_WINDOWS = 12
"""Windows of time that say which jobs run at about the same time. With fewer, nearly all do; with more, hardly any."""


class Repair:
    """Improves plans by timing parts of them anew."""

    def __init__(self, context: Context) -> None:
        self.context, self.data, self.rng, self.budget = context, context.data, context.rng, context.budget
        self._model = RepairModel(context.solve_state, context.data, context.engine)
        self.params = context.params.cp_repair
        self._effort = Effort(context.params.driver.longest)
        self._all = range(len(context.operations.jobs))
        self._sizes = [job.iterations * (len(job.blocks) + len(job.transfers)) for job in context.operations.jobs]

    def improve(self, plan: Timetable) -> Candidate | None:
        """Time parts anew as long as that improves the plan; a fruitless call allows the next one more work."""
        found = self._cycle(plan) if plan.period_us is not None else self._line(plan)
        self._effort.spent(found is not None)
        return found

    def _line(self, plan: Timetable) -> Candidate | None:
        found = None
        while not self.budget.over():
            jobs = self._around(plan, self._first(plan))
            better = self._model.improve(plan, jobs, self.params.work * self._effort.length)
            if better is None:
                break
            plan, found = better, self._proposed(better)
        return found

    def _cycle(self, plan: Timetable) -> Candidate | None:
        """Bisect for the least period of the placement, all jobs at once."""
        if sum(self._sizes) > self.params.operations[-1]:
            return None
        low, jobs, found = self.context.solve_state.bound, list(range(len(self._sizes))), None
        failures = 0
        while plan.period_us is not None and low < plan.period_us and failures < _PERIODS and not self.budget.over():
            period = (low + plan.period_us) // 2
            better = self._model.at_period(plan, jobs, period, self.params.work * self._effort.length)
            if better is None:
                low, failures = period + 1, failures + 1
            else:
                plan, found = better, self._proposed(better)
        return found

    def _proposed(self, plan: Timetable) -> Candidate:
        candidate = self.context.candidate(plan)
        self.context.propose(candidate)
        return candidate

    def _first(self, plan: Timetable) -> int:
        """Return the job that ends last, or with weighted ends any."""
        if self.data.operations.objective == "weighted_completion":
            return self.rng.randrange(len(plan.jobs))
        return max(range(len(plan.jobs)), key=lambda index: plan.jobs[index].end_us)

    def _around(self, plan: Timetable, first: int) -> list[int]:
        """Return a job and those that have most in common with it, up to a number of operations."""
        most, features = (
            self.rng.choice(self.params.operations),
            self.rng.choice((self._gpus, self._servers, self._links, self._times)),
        )
        own = features(plan, first)
        closeness = [(-len(own.intersection(features(plan, index))), self.rng.random()) for index in self._all]
        chosen, left = {first}, most - self._sizes[first]
        for index in sorted(self._all, key=closeness.__getitem__):
            if index not in chosen and self._sizes[index] <= left:
                chosen.add(index)
                left -= self._sizes[index]
        return sorted(chosen)

    @staticmethod
    def _gpus(plan: Timetable, index: int) -> frozenset[object]:
        """Return the GPUs of a job."""
        return frozenset(plan.jobs[index].gpus)

    def _servers(self, plan: Timetable, index: int) -> frozenset[object]:
        """Return the servers of a job."""
        number, server_of = self.data.number, self.data.layout.server_of
        return frozenset(server_of[number[name]] for name in plan.jobs[index].gpus)

    def _links(self, plan: Timetable, index: int) -> frozenset[object]:
        """Return the links of a job, or where it uses none, its GPUs."""
        number, job = self.data.number, self.data.operations.jobs[index]
        channel = self.data.channel(job, [number[name] for name in plan.jobs[index].gpus])
        return frozenset(channel.links) if channel is not None and channel.links else self._gpus(plan, index)

    def _times(self, plan: Timetable, index: int) -> frozenset[object]:
        """Return in which of some equal windows of time a job runs."""
        jobs = plan.jobs
        begin, end = jobs[index].start_us, jobs[index].end_us
        window = max(1, max(job.end_us for job in jobs) // _WINDOWS)
        return frozenset(range(begin // window, end // window + 1))


class RepairBest:
    """Times parts of the best plan anew."""

    name: ClassVar[str] = "cp_repair"

    def __init__(self, context: Context) -> None:
        self.repair = context.shared(Repair)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the horizon is finite, or has too many operations for their sequence to be annealed."""
        return not (context.cyclic and context.sequenced)

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Repair the best plan."""
        return None if incumbent is None else self.repair.improve(incumbent.timetable)
