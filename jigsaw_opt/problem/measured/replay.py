"""The measured times of a plan on a machine: fields as in ``jigsaw-replay/1`` and ``jigsaw-phased-replay/1``.

Times are microseconds after the moment when all processes began, or the phase did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.measured.times import Timeline

Policy = Literal["fifo", "gang", "alone"]


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """A GPU of the plan.

    `memory_bytes`: the most that its workers took at once: on CUDA by torch's allocator, on a CPU weights, buffers,
    gradients and the optimiser's state of those that were there, and the most that a block of one keeps for its
    backward pass. `planned_memory_bytes`: the most that the workers placed there need at one moment of the plan
    (specification: memory).
    """

    name: str
    memory_bytes: int
    planned_memory_bytes: int


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """Predicted against measured; a measured value is None where the run was too short to tell.

    `objective`: which time is compared: that of a finite plan or of a period. `predicted_us, measured_us`: that time;
    of several passes over a finite plan the median. `block_error, block_error_p90, block_bias`: over all blocks,
    relative to the planned duration: median and 90th percentile of the error's size, and its median with its sign.
    `transfer_error_us`: median size of the error of a transfer's duration; None without transfers. `busy_predicted,
    busy_measured`: share of the time in which the GPUs of the plan run blocks.
    """

    objective: Literal["makespan", "period"]
    predicted_us: int
    measured_us: int | None
    block_error: float
    block_error_p90: float
    block_bias: float
    transfer_error_us: int | None
    busy_predicted: float
    busy_measured: float | None

    @property
    def error(self) -> float | None:
        """Relative error of the measured time: 0.1 where it took a tenth longer than predicted."""
        return None if self.measured_us is None else self.measured_us / self.predicted_us - 1


@dataclass(frozen=True, slots=True)
class KindError:
    """Durations of the passes of one kind of a pipeline, or of what is sent, predicted against measured.

    `error`: median size of the error of a duration, relative to the planned one.
    """

    count: int
    planned_us: int
    measured_us: int
    error: float


@dataclass(frozen=True, slots=True)
class MeasuredRestart:
    """A job that goes on in a phase after it has moved or was absent (specification: moves).

    `job, restart_us`: its name, and what it is to wait at least. `measured_us`: from the end of its last operation to
    the start of its first one in this phase; phases without it count.
    """

    job: str
    restart_us: int
    measured_us: int


@dataclass(frozen=True, slots=True)
class MeasuredPhase:
    """A phase that was carried out, or the first of its repetitions.

    `group, number`: number of its group in the plan, and its own number in the group. `repeats, repeated`: repetitions
    of the plan, None where it lists all iterations or is cyclic; and how many of them there have been. `summary`: its
    period and its operations, predicted against measured; None where an earlier run did all of it. `predicted_end_us`:
    end of the phase by the plan. `measured_begin_us, measured_end_us`: when it begins and ends by what was measured,
    counted as in the plan. Repetitions that are left out count with the measured period, restarts with their
    ``restart_us``. None where that is not known, or where an earlier run did some of the phase or of one before it.
    `seam_us`: from the end of the phase before to its begin, in which workers were saved, let go, built and warmed up;
    part of no end. None of the first phase, and where an earlier run did all of the one before. `timeline`: measured
    times, from the moment when the phase began. `restarts`: restarts of the jobs that have moved to other GPUs or were
    absent.
    """

    group: int
    number: int
    repeats: int | None
    repeated: int
    summary: ReplaySummary | None
    predicted_end_us: int
    measured_begin_us: int | None
    measured_end_us: int | None
    seam_us: int | None
    timeline: Timeline
    restarts: tuple[MeasuredRestart, ...] = ()

    @classmethod
    def only(cls, summary: ReplaySummary | None, timeline: Timeline) -> MeasuredPhase:
        """Return the only phase of a plan that lists all iterations or is cyclic: its begin is not told by itself."""
        times = (0, None, None, None) if summary is None else (summary.predicted_us, None, summary.measured_us, None)
        return cls(0, 0, None, timeline.passes, summary, *times, timeline)


@dataclass(frozen=True, slots=True)
class JobCycle:
    """The time that a pass over the plan takes some jobs, from their end in one pass to that in the next.

    `iterations`: number of their iterations in a pass. `planned_us, measured_us`: microseconds by the plan, and as
    measured; None where the run was too short to tell.
    """

    iterations: int
    planned_us: int
    measured_us: int | None

    def rates(self) -> tuple[float, float | None]:
        """Return iterations a second, planned and measured."""
        measured = None if self.measured_us is None else 1e6 * self.iterations / self.measured_us
        return 1e6 * self.iterations / self.planned_us, measured


@dataclass(frozen=True, slots=True)
class Baseline:
    """The same jobs at full depth, one at a time on its GPUs; or the foreground alone.

    `policy, summary, timeline`: the policy, and the measured times under it. `together`: what the foreground takes in
    the plan, beside the others; None of other policies.
    """

    policy: Policy
    summary: ReplaySummary
    timeline: Timeline
    together: JobCycle | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of a plan.

    Parameters
    ----------
    instance, instance_sha256, plan_sha256
        What was carried out: SHA-256 of the canonical instance, and of the plan's jobs and period or of its groups.
    machine
        Device, backend, versions and whatever else may explain the times.
    gpus
        In the order of their processes: slots of a pipeline or burst, then others as in the cluster.
    phases
        Group by group; one of a plan that lists all iterations or is cyclic.
    parameters_sha256
        Digest of the parameters at the end, by job and worker; empty where the run was interrupted.
    baseline
        None where none was asked for.
    kinds
        Errors by kind of pass (``F``, ``B``, ``W``) of a pipeline, and of what is ``sent``; empty for other jobs.
    cycles
        By job, what a pass takes it, where some jobs are beside others in the foreground; else empty.
    building_us
        Time between jobs that follow one another in memory, in which workers were let go, built and warmed up. All
        clocks stood still meanwhile, so it is part of no other time.
    """

    instance: str
    instance_sha256: str
    plan_sha256: str
    machine: Mapping[str, str | int]
    gpus: tuple[MeasuredGpu, ...]
    phases: tuple[MeasuredPhase, ...]
    parameters_sha256: Mapping[str, tuple[str, ...]]
    baseline: Baseline | None = None
    kinds: Mapping[str, KindError] = field(default_factory=dict)
    cycles: Mapping[str, JobCycle] = field(default_factory=dict)
    building_us: int = 0

    @property
    def counts_repeats(self) -> bool:
        """Whether its plan says how often phases are repeated."""
        return any(phase.repeats is not None for phase in self.phases)

    @property
    def summary(self) -> ReplaySummary:
        """Predicted against measured, of a plan that does not say how often phases are repeated.

        Raises
        ------
        UsageError
            It does.
        """
        found = self.phases[0].summary
        if self.counts_repeats or found is None:
            told = "the plan repeats phases, each of which has a summary and a timeline: .phases"
            raise UsageError(told, code="unsupported")
        return found

    @property
    def timeline(self) -> Timeline:
        """The measured times of a plan that does not say how often phases are repeated; errors as of `summary`."""
        assert self.summary, "it has one, or an error was raised"
        return self.phases[0].timeline

    @property
    def predicted_us(self) -> int:
        """The makespan by the plan, or its period."""
        return max(phase.predicted_end_us for phase in self.phases)

    @property
    def measured_us(self) -> int | None:
        """The measured makespan or period; None where some end is not known."""
        ends = [phase.measured_end_us for phase in self.phases]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None

    @property
    def is_cut(self) -> bool:
        """Whether some phase has more repetitions than there have been."""
        return any(phase.repeats is not None and phase.repeated < phase.repeats for phase in self.phases)

    def speed_up(self) -> tuple[float, float | None] | None:
        """Return the time of the baseline over that of the plan, predicted and measured; None without a baseline."""
        if self.baseline is None or self.baseline.together is not None:
            return None
        usual, own = self.baseline.summary, self.summary
        if usual.measured_us is None or own.measured_us is None:
            return usual.predicted_us / own.predicted_us, None
        return usual.predicted_us / own.predicted_us, usual.measured_us / own.measured_us

    def slow_down(self) -> tuple[float, float | None] | None:
        """Return the foreground's time in the plan over that alone, planned and measured; None if not run alone."""
        if self.baseline is None or self.baseline.together is None:
            return None
        together, alone = self.baseline.together, self.baseline.summary
        planned = together.planned_us / alone.predicted_us
        if together.measured_us is None or alone.measured_us is None:
            return planned, None
        return planned, together.measured_us / alone.measured_us
