"""The workload of a cluster: which jobs arrive when, and how much each has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["StageTimes", "TraceJob", "Workload"]


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace. Its depth rule is the policy's to choose, not the trace's.

    Parameters
    ----------
    name
        Its name, unique in its workload.
    submit_us
        When it is submitted, from the beginning of the workload.
    model
        Name of its model, which the performance model knows.
    gpus
        How many GPUs it asks for.
    iterations
        Iterations at full depth on the GPUs that it asks for; None for as many as its model needs,
        where the performance model knows how many those are.
    min_gpus, max_gpus
        The fewest and the most GPUs that it can run on; 0 for exactly `gpus`.
    weight
        Its weight in weighted measures, at least 1.
    batch_size
        Samples of an iteration over all GPUs; None for the model's own, or the performance model's choice.
    foreground
        Whether it goes before all jobs that are not.
    """

    name: str
    submit_us: int
    model: str
    gpus: int
    iterations: int | None = None
    min_gpus: int = 0
    max_gpus: int = 0
    weight: int = 1
    batch_size: int | None = None
    foreground: bool = False

    @property
    def fewest(self) -> int:
        """The fewest GPUs that it can run on."""
        return self.min_gpus or self.gpus

    @property
    def most(self) -> int:
        """The most GPUs that it can run on."""
        return self.max_gpus or self.gpus


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long one iteration of a model uses each resource, in microseconds (Muri, SIGCOMM 2022, section 3)."""

    load_us: int
    compute_us: int
    network_us: int
    iteration_us: int
    """Of a whole iteration alone; less than the sum of the stages where they overlap."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of a trace, in order of submission (equal times: in the trace's order).

    Parameters
    ----------
    name
        Its name.
    jobs
        At least one.
    stages
        Stage times by model, where the trace itself gives them.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    stages: Mapping[str, StageTimes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.submit_us)))
