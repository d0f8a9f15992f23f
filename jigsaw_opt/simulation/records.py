"""What a simulation leaves behind: a record a job, a record a round, and when each job held how many GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["JobRecord", "Outcome", "RoundRecord", "Stint"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job that ended, or where it stood when the simulation was stopped.

    Parameters
    ----------
    index
        Its number in the workload.
    start_us, finish_us
        When it first held GPUs, and when its last iteration ended; None for not yet.
    work, done
        Units of work in all, and done.
    gpu_us
        GPU-microseconds that it held; those of a share count for its jobs in equal parts.
    restarts
        How often it started on other GPUs, its first start aside.
    alone_us
        Time of all its work alone on the GPUs that it asks for.
    crowd
        Mean number of active jobs from its submission to its end, itself included.
    """

    index: int
    start_us: int | None
    finish_us: int | None
    work: int
    done: int
    gpu_us: int
    restarts: int
    alone_us: int
    crowd: float


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round in which the policy was asked; between two records nothing was decided.

    Parameters
    ----------
    time_us
        When.
    active, running
        Jobs submitted and not ended; those of them that hold GPUs from now on.
    gpus
        GPUs that they hold.
    moved
        Jobs that start on other GPUs than before, first starts included.
    held_gpu_us
        GPU-microseconds held since the record before.
    policy_us
        CPU time that the policy took.
    """

    time_us: int
    active: int
    running: int
    gpus: int
    moved: int
    held_gpu_us: int
    policy_us: int


@dataclass(frozen=True, slots=True)
class Stint:
    """A job held `gpus` GPUs, alone or with others, from `start_us` to `end_us`."""

    job: int
    gpus: int
    start_us: int
    end_us: int


@dataclass(slots=True)
class Outcome:
    """All records of a simulation.

    Parameters
    ----------
    end_us
        The time up to which it ran.
    jobs
        In the order of the workload.
    rounds, stints
        In order of time.
    """

    end_us: int = 0
    jobs: list[JobRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    stints: list[Stint] = field(default_factory=list)
