"""What a placement is worth: a list schedule under given priorities, and its objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.solvers.greedy.cyclic import compress
from jigsaw_opt.solvers.greedy.layout import Layout
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.greedy.timing import Schedule, list_schedule

__all__ = ["Evaluator", "Outcome"]

_LEAST_SWEEPS, _MOST_SWEEPS, _SWEEP_PIECES = 8, 100, 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """A schedule, its objective, and its period on a cyclic horizon."""

    value: int
    schedule: Schedule
    period_us: int | None


class Evaluator:
    """Schedules placed jobs and says what the schedule is worth.

    Parameters
    ----------
    pieces
        The instance, cut; either horizon, any objective.
    layout
        Its GPUs.
    """

    def __init__(self, pieces: Pieces, layout: Layout) -> None:
        self.pieces, self.layout = pieces, layout
        self.weighted = pieces.objective == "weighted_completion"
        size = pieces.blocks + pieces.transfers
        self._sweeps = max(_LEAST_SWEEPS, min(_MOST_SWEEPS, _SWEEP_PIECES // size))

    def evaluate(self, jobs: Sequence[PlacedJob], urgency: Sequence[float], hold_us: Sequence[int]) -> Outcome:
        """The list schedule of placed jobs.

        Parameters
        ----------
        jobs
            The jobs, placed.
        urgency
            By job, a factor on its priority.
        hold_us
            By job, its earliest start; list scheduling alone never waits for a better job to come.
        """
        gpus, links = len(self.layout.gpus), self.layout.links
        rule = _smith if self.weighted else _tail
        schedule = list_schedule(jobs, gpus, links, rule, urgency, hold_us)
        if self.pieces.horizon == "cyclic":
            period, schedule = compress(schedule, gpus, links, self._sweeps)
            return Outcome(period, schedule, period)
        ends = [progress.end for progress in schedule.jobs]
        weights = [job.weight for job in self.pieces.jobs]
        return Outcome(sum(map(mul, weights, ends)) if self.weighted else max(ends), schedule, None)

    def timetable(self, outcome: Outcome) -> Timetable:
        """The timetable of an outcome."""
        gpus = self.layout.gpus
        decisions = [
            JobDecision([gpus[gpu] for gpu in done.job.gpus], done.levels, done.blocks, done.transfers)
            for done in outcome.schedule.jobs
        ]
        return Timetable(assemble(self.pieces, decisions), outcome.period_us)


def _tail(job: PlacedJob, left: int) -> float:
    """The job with the longest time still to run goes first."""
    return -left * job.iteration_us


def _smith(job: PlacedJob, left: int) -> float:
    """The job with the least time still to run per weight goes first (Smith's rule)."""
    return left * job.iteration_us / job.job.weight
