"""What a phased plan took on a machine, measured: fields as in ``jigsaw-phased-replay/1``. Times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jigsaw_opt.problem.replay import MeasuredGpu, ReplaySummary, Timeline

__all__ = ["MeasuredPhase", "PhasedReplay"]


@dataclass(frozen=True, slots=True)
class MeasuredPhase:
    """A phase that was carried out, or the first of its repetitions.

    Parameters
    ----------
    group, number
        Of its group in the plan, and its own in the group.
    repeats, repeated
        Repetitions of the plan, and how many of them there have been.
    summary
        Its period and its operations, predicted against measured; None where an earlier run did all of it.
    predicted_end_us
        When the phase ends by the plan.
    measured_begin_us, measured_end_us
        When it begins and ends by what was measured, counted as in the plan. Repetitions that are left out count with
        the measured period. None where that is not known, or where an earlier run did some of the phase or of one
        before it.
    seam_us
        From the end of the phase before to its begin, in which workers were saved, let go, built and warmed up; part of
        no end. None of the first phase, and where an earlier run did all of the one before.
    timeline
        From the moment when the phase began.
    """

    group: int
    number: int
    repeats: int
    repeated: int
    summary: ReplaySummary | None
    predicted_end_us: int
    measured_begin_us: int | None
    measured_end_us: int | None
    seam_us: int | None
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class PhasedReplay:
    """A replay of a phased plan.

    Parameters
    ----------
    instance, instance_sha256, plan_sha256
        What was carried out: SHA-256 of the canonical instance and of the plan's groups.
    machine
        Device, backend, versions and whatever else may explain the times.
    gpus
        In the cluster's order.
    phases
        Group by group.
    parameters_sha256
        By job and worker, digest of its parameters at the end.
    """

    instance: str
    instance_sha256: str
    plan_sha256: str
    machine: Mapping[str, str | int]
    gpus: tuple[MeasuredGpu, ...]
    phases: tuple[MeasuredPhase, ...]
    parameters_sha256: Mapping[str, tuple[str, ...]]

    @property
    def predicted_us(self) -> int:
        """The makespan by the plan."""
        return max(phase.predicted_end_us for phase in self.phases)

    @property
    def measured_us(self) -> int | None:
        """The makespan by what was measured; None where some end is not known."""
        ends = [phase.measured_end_us for phase in self.phases]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None

    @property
    def is_cut(self) -> bool:
        """Whether some phase has more repetitions than there have been."""
        return any(phase.repeated < phase.repeats for phase in self.phases)
