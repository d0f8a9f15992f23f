"""What a placement is worth: a list schedule under given priorities, and its objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble, lateness_us
from jigsaw_opt.solvers.greedy.flat import Flat
from jigsaw_opt.solvers.placement.assignment import Assignment
from jigsaw_opt.solvers.placement.layout import Layout

_PASSES = {"finite": 1, "cyclic": 2}
"""About how many passes over all operations an evaluation takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A list schedule, in short.

    `value`: its objective; where it breaks guarantees, more than that of any plan without needless waiting. `begins,
    ends`: first start and last barrier of every job. `period_us`: its period on a cyclic horizon.
    """

    jobs: Sequence[Assignment]
    priority: Sequence[float]
    offset_us: Sequence[int]
    value: int
    begins: list[int]
    ends: list[int]
    period_us: int | None


class Evaluator:
    """Schedules placed jobs and says what the schedule is worth.

    `operations`: the compiled instance; either horizon, any objective. `operations_a_look`: about how many operations
    an evaluation goes through.
    """

    def __init__(self, operations: Operations, layout: Layout) -> None:
        self.operations, self.layout = operations, layout
        self.weighted = operations.objective == "weighted_completion"
        self.operations_a_look = (operations.blocks + operations.transfers) * _PASSES[operations.horizon]
        self._flat = Flat(operations, layout)
        self._weights = [job.weight for job in operations.jobs]
        # What a microsecond of a broken guarantee counts as: a list schedule that keeps them all is better.
        self._penalty = serial_limit(operations) if operations.instance.guaranteed_jobs else 0
        self._last: Outcome | None = None

    def evaluate(self, jobs: Sequence[Assignment], priority: Sequence[float], offset_us: Sequence[int]) -> Outcome:
        """Return the list schedule of placed jobs.

        `priority`: by job, a factor on its priority. The job with the longest time still to run goes first, for
        weighted completions that with the least time per weight (Smith's rule). `offset_us`: by job, its earliest
        start; list scheduling alone never waits for a better job to come.
        """
        flat = self._flat
        flat.schedule(jobs, self._rate(jobs, priority), offset_us)
        ends = flat.ends()
        value = flat.period_us or (sum(map(mul, self._weights, ends)) if self.weighted else max(ends))
        value += self.penalty(ends, flat.period_us)
        self._last = Outcome(jobs, priority, offset_us, value, flat.begins(), ends, flat.period_us)
        return self._last

    def penalty(self, ends: Sequence[int], period_us: int | None = None) -> int:
        """Return what a schedule counts as beside its objective, for the guarantees that it breaks."""
        return self._penalty * lateness_us(self.operations, ends, period_us) if self._penalty else 0

    def timetable(self, outcome: Outcome) -> Timetable:
        """Return the timetable of an outcome."""
        if outcome is not self._last:
            self.evaluate(outcome.jobs, outcome.priority, outcome.offset_us)
        return Timetable(assemble(self.operations, self._flat.decisions(outcome.jobs)), outcome.period_us)

    def _rate(self, jobs: Sequence[Assignment], priority: Sequence[float]) -> list[float]:
        if self.weighted:
            return [job.iteration_us / job.job.weight * factor for job, factor in zip(jobs, priority, strict=True)]
        return [-job.iteration_us * factor for job, factor in zip(jobs, priority, strict=True)]
