"""Jobs that last a given time on the GPUs that they ask for, wherever these are: for traces that tell no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import DURATION_UNITS_US, StageTimes, TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.pace import UNITS, Pace, rate_of

__all__ = ["Seconds", "seconds"]

_SECOND_US = 1_000_000


class Seconds:
    """One iteration a second, on exactly the GPUs asked for, each job alone.

    Jobs of the models ``milliseconds`` and ``microseconds`` have an iteration in each of these, so that no duration of
    a trace is rounded.
    """

    name = "seconds"
    figures = ()

    def unknown(self, job: TraceJob) -> str | None:
        """Any model is as good as any other; only the number of iterations must be known."""
        return None if job.iterations is not None else "has no number of iterations"

    def work(self, job: TraceJob) -> int:
        """Its iterations."""
        assert job.iterations is not None
        return job.iterations * UNITS

    def alone_us(self, job: TraceJob) -> int:
        """A second an iteration."""
        assert job.iterations is not None
        return job.iterations * _iteration_us(job)

    def restart_us(self, job: TraceJob) -> int | None:
        """As the simulation says."""
        return None

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """A job has its GPUs to itself, and as many as it asks for."""
        if len(jobs) > 1:
            return "durations are known only of jobs that run alone"
        if len(share.gpus) != jobs[0].gpus:
            return f"its duration is known on {jobs[0].gpus} GPUs, not on {len(share.gpus)}"
        return None

    def paces(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Pace, ...]:
        """One iteration a second."""
        return (Pace(rate_of(_iteration_us(jobs[0]))),)


def _iteration_us(job: TraceJob) -> int:
    return DURATION_UNITS_US.get(job.model, _SECOND_US)


def seconds(source: Path | None, cluster: Cluster, stages: Mapping[str, StageTimes]) -> Seconds:
    """It needs no figures.

    Raises
    ------
    UsageError
        There is a source.
    """
    if source is not None:
        raise UsageError(f"performance 'seconds' has no source; what is {source}?")
    return Seconds()
