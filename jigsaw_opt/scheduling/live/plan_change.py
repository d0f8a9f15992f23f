"""What a step of a live scheduler tells: who starts, stops and moves, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jigsaw_opt.problem.depth import Depth
from jigsaw_opt.scheduling.allocation import MOST_SLOWDOWN
from jigsaw_opt.scheduling.plain import DEPTH, TEXT, Kept, NumberLimits, Shape, fields, listed, number, optional


@dataclass(frozen=True, slots=True)
class JobAssignment(Kept):
    """The assignment of a job: what it runs on.

    Parameters
    ----------
    job
        Its name.
    gpus
        Names of GPUs, as in ``s0/3``. With partners they are a pool of which each job uses as many as it asks for.
    depth
        Depth rule. Which levels its workers stop at is the timetable's of those that share the GPUs.
    partners
        Names of the jobs that share the GPUs.
    slowdown
        The job in the foreground of the GPUs has iterations at most so many times as long as alone; None where jobs
        take turns one to one.
    """

    job: str
    gpus: tuple[str, ...]
    depth: Depth
    partners: tuple[str, ...] = ()
    slowdown: float | None = None

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        slowdown = optional(number(1, MOST_SLOWDOWN))
        return fields(job=TEXT, gpus=listed(TEXT, 1), depth=DEPTH, partners=listed(TEXT), slowdown=slowdown)


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job that held no GPUs starts."""

    to: JobAssignment
    reason: str


@dataclass(frozen=True, slots=True)
class JobStop:
    """A job gives its GPUs back, and waits unless it is cancelled."""

    job: str
    gpus: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class JobMove:
    """A job goes on with other GPUs, or on the same ones with other partners or another depth rule."""

    before: JobAssignment
    to: JobAssignment
    reason: str

    @property
    def restarts(self) -> bool:
        """Whether the GPUs are others."""
        return self.before.gpus != self.to.gpus


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change of the plan that is to be carried out now: stops first, then moves, then starts.

    Parameters
    ----------
    time_us
        The time of the step.
    starts, stops, moves
        Jobs by what happens to them; those in none go on as they are.
    wake_us
        When the policy wants to be asked again even if nothing happens; None if it need not be.
    late
        Whether the policy is still deciding: the step did not wait for it, and a later one takes its decision.
    failure
        Why the policy gave no decision that can be carried out; empty if it did. What runs goes on.
    """

    time_us: int
    starts: tuple[JobStart, ...] = field(default=())
    stops: tuple[JobStop, ...] = field(default=())
    moves: tuple[JobMove, ...] = field(default=())
    wake_us: int | None = None
    late: bool = False
    failure: str = ""


def changes(
    before: Mapping[str, JobAssignment], after: Mapping[str, JobAssignment], reasons: Mapping[str, str], policy: str
) -> Iterator[JobStart | JobStop | JobMove]:
    """Yield what leads from one state of what runs to another, both by names of jobs.

    A job that lost its GPUs and has the same ones again is stopped and started.
    """
    for job, old in before.items():
        if job not in after:
            yield JobStop(job, old.gpus, reasons.get(job, f"{policy} gives its GPUs to others"))
    for job, new in after.items():
        if job not in before:
            yield JobStart(new, reasons.get(job, _starting(new, policy)))
        elif job in reasons and before[job].gpus == new.gpus:
            yield JobStop(job, new.gpus, reasons[job])
            yield JobStart(new, _starting(new, policy))
        elif before[job] != new:
            why = f"{policy} gives it other GPUs" if before[job].gpus != new.gpus else _starting(new, policy)
            yield JobMove(before[job], new, reasons.get(job, why))


def _starting(new: JobAssignment, policy: str) -> str:
    return f"{policy} has it share GPUs with {', '.join(new.partners)}" if new.partners else f"{policy} gives it GPUs"
