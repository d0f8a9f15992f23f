"""What a placement is worth: a list schedule under given priorities, and its objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.problem.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.solvers.greedy.flat import Flat
from jigsaw_opt.solvers.greedy.layout import Layout
from jigsaw_opt.solvers.greedy.placed import PlacedJob

__all__ = ["Evaluator", "Outcome"]

_PASSES = {"finite": 1, "cyclic": 2}
"""About how many passes over all pieces an evaluation takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A list schedule, in short.

    Parameters
    ----------
    jobs, urgency, hold_us
        What was scheduled.
    value
        Its objective.
    begins, ends
        First start and last barrier of every job.
    period_us
        Its period on a cyclic horizon.
    """

    jobs: Sequence[PlacedJob]
    urgency: Sequence[float]
    hold_us: Sequence[int]
    value: int
    begins: list[int]
    ends: list[int]
    period_us: int | None


class Evaluator:
    """Schedules placed jobs and says what the schedule is worth.

    Parameters
    ----------
    pieces
        The instance, cut; either horizon, any objective.
    layout
        Its GPUs.

    Attributes
    ----------
    pieces_a_look
        About how many pieces an evaluation goes through.
    """

    def __init__(self, pieces: Pieces, layout: Layout) -> None:
        self.pieces, self.layout = pieces, layout
        self.weighted = pieces.objective == "weighted_completion"
        self.pieces_a_look = (pieces.blocks + pieces.transfers) * _PASSES[pieces.horizon]
        self._flat = Flat(pieces, layout)
        self._weights = [job.weight for job in pieces.jobs]
        self._last: Outcome | None = None

    def evaluate(self, jobs: Sequence[PlacedJob], urgency: Sequence[float], hold_us: Sequence[int]) -> Outcome:
        """The list schedule of placed jobs.

        Parameters
        ----------
        jobs
            The jobs, placed.
        urgency
            By job, a factor on its priority. The job with the longest time still to run goes first, for weighted
            completions that with the least time per weight (Smith's rule).
        hold_us
            By job, its earliest start; list scheduling alone never waits for a better job to come.
        """
        flat = self._flat
        flat.schedule(jobs, self._rate(jobs, urgency), hold_us)
        ends = flat.ends()
        value = flat.period_us or (sum(map(mul, self._weights, ends)) if self.weighted else max(ends))
        self._last = Outcome(jobs, urgency, hold_us, value, flat.begins(), ends, flat.period_us)
        return self._last

    def timetable(self, outcome: Outcome) -> Timetable:
        """The timetable of an outcome."""
        flat, gpus = self._again(outcome), self.layout.gpus
        decisions = [
            JobDecision([gpus[gpu] for gpu in job.gpus], flat.levels(index), flat.blocks(index), flat.transfers(index))
            for index, job in enumerate(outcome.jobs)
        ]
        return Timetable(assemble(self.pieces, decisions), outcome.period_us)

    def levels(self, outcome: Outcome) -> list[list[list[int]]]:
        """Levels in an outcome, by job, iteration and slot."""
        flat = self._again(outcome)
        return [flat.levels(index) for index in range(len(outcome.jobs))]

    def _again(self, outcome: Outcome) -> Flat:
        """The whole schedule, made once more if it is not the last one."""
        if outcome is not self._last:
            self.evaluate(outcome.jobs, outcome.urgency, outcome.hold_us)
            self._last = outcome
        return self._flat

    def _rate(self, jobs: Sequence[PlacedJob], urgency: Sequence[float]) -> list[float]:
        if self.weighted:
            return [job.iteration_us / job.job.weight * factor for job, factor in zip(jobs, urgency, strict=True)]
        return [-job.iteration_us * factor for job, factor in zip(jobs, urgency, strict=True)]
