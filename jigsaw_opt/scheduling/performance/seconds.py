"""Jobs that last a given time on the GPUs that they ask for, wherever these are: for traces that tell no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jigsaw_opt.errors import unsupported
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import DURATION_UNITS_US, TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.protocol import ByIterations, Speed, mixed_types, rate_of
from jigsaw_opt.scheduling.performance.type_speeds import TypeSpeeds, speeds_of

_SECOND_US = 1_000_000


class Seconds(ByIterations):
    """One iteration a second, on exactly the GPUs asked for, each job alone.

    Jobs of the models ``milliseconds`` and ``microseconds`` have an iteration in each of these, so that no duration of
    a trace is rounded.
    """

    name = "seconds"

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: only its number of iterations must be known."""
        return None if job.iterations is not None else "has no number of iterations"

    def alone_us(self, job: TraceJob) -> int:
        """Return the time of all its iterations, a second each where its model states no other unit."""
        assert job.iterations is not None
        return job.iterations * _iteration_us(job)

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: a job needs GPUs of its own, and as many as it asks for.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if len(jobs) > 1:
            return "durations are known only of jobs that run alone"
        if len(share.gpus) != jobs[0].gpus:
            return f"its duration is known on {jobs[0].gpus} GPUs, not on {len(share.gpus)}"
        return None

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speed of one iteration a second, or a unit that the model states."""
        return (Speed(rate_of(_iteration_us(jobs[0]))),)


class SecondsByType(Seconds):
    """The same on GPUs of several types: an iteration takes the longer, the slower the type is."""

    def __init__(self, cluster: Cluster, speeds: TypeSpeeds) -> None:
        self.type_speeds, self.figures = speeds, speeds.figures
        self._type_of = cluster.gpus.types
        self._counts = Counter(self._type_of)

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: its number of iterations, or the speed of the GPUs that it ran on."""
        return super().unknown(job) or self.type_speeds.unknown(job)

    def alone_us(self, job: TraceJob) -> int:
        """Return its time on the fastest type that it may have and that has as many GPUs as it asks for."""
        return round(super().alone_us(job) / self.type_speeds.best(job, self._counts))

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused; beside the reasons of `Seconds`, its GPUs must be of one type.

        The reason, or None where they can.
        """
        return mixed_types(share, self._type_of) or super().refuses(share, jobs)

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speed of a job: that of the reference type times the speed of the share's type."""
        factor = self.type_speeds.factor(jobs[0], self._type_of[share.gpus[0]])
        return (Speed(rate_of(_iteration_us(jobs[0]) / factor)),)

    def throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second on a GPU type; 0 where the cluster has fewer of it than the job asks for."""
        if self._counts[gpu_type] < job.gpus:
            return 0.0
        return float(self.type_speeds.factor(job, gpu_type) * _SECOND_US / _iteration_us(job))


def _iteration_us(job: TraceJob) -> int:
    return DURATION_UNITS_US.get(job.model, _SECOND_US)


def seconds(source: Path | None, cluster: Cluster, speeds: str = "") -> Seconds:
    """Return the performance model; it needs no figures but the speeds of several types of GPU.

    `source`: none, as durations stand in the trace. `speeds`: speeds of the types of GPU, in words; empty where the
    cluster has one type.
    """
    if source is not None:
        raise unsupported("performance", f"performance 'seconds' has no source; what is {source}?")
    found = speeds_of(speeds, cluster)
    return Seconds() if found is None else SecondsByType(cluster, found)
