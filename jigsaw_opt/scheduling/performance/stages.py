"""Jobs whose iterations are known by stages: alone, or several in turn on the same GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from jigsaw_opt.errors import missing_option, unsupported
from jigsaw_opt.formulations.interleave.rotation import MOST_JOBS, StagedJob
from jigsaw_opt.formulations.interleave.rounds import group_round
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.workload import StageTimes, TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.protocol import Speed, rate_of
from jigsaw_opt.scheduling.performance.seconds import ByTypeSpeeds, TypeSpeeds, speeds_of

_OVERHEAD = Fraction(203, 200)
"""An iteration of a job alone over what its trace states: 1.015 in Muri's simulator."""


class Stages(ByTypeSpeeds):
    """Speeds from the stages that the trace itself gives.

    A share without depth rules takes turns in Muri's rotation; one with them runs a timetable of the group.

    `stages`: the stages of each model, by its name. `cluster, speeds`: the types of GPU and how fast they are, where
    there are several; iterations are then as much faster or slower.
    """

    name = "stages"

    def __init__(
        self, stages: Mapping[str, StageTimes], cluster: Cluster | None = None, speeds: TypeSpeeds | None = None
    ) -> None:
        super().__init__(cluster, speeds)
        self._stages = dict(stages)
        self._alone = {model: round(times.iteration_us * _OVERHEAD) for model, times in stages.items()}
        self.figures = self._stages if speeds is None else (self._stages, *speeds.figures)

    def staged(self, job: TraceJob, staircase: bool = False) -> StagedJob:
        """Return what the program of groups knows of a job."""
        times = self._stages[job.model]
        alone = self._alone[job.model]
        return StagedJob(job.gpus, times.load_us, times.compute_us, times.network_us, alone, staircase)

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: the stages of its model, or its number of iterations."""
        if job.model not in self._stages:
            return f"has a model without stages, {job.model!r}"
        return super().unknown(job)

    def alone_us(self, job: TraceJob) -> int:
        """Return its time by the iterations of the trace, with what Muri adds, on its fastest type."""
        assert job.iterations is not None
        return round(job.iterations * self._alone[job.model] / self._best(job))

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: jobs share GPUs only if all ask for that number, and at most four do.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if len(jobs) > MOST_JOBS:
            return f"more than {MOST_JOBS} jobs cannot take turns"
        other = next((job for job in jobs if job.gpus != len(share.gpus)), None)
        wrong = None if other is None else f"its stages are known on {other.gpus} GPUs, not on {len(share.gpus)}"
        return super().refuses(share, jobs) or wrong

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speed of each job of a group, by the length of the group's round.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        depths = share.depths or (FullDepth(),) * len(jobs)
        group = [self.staged(job, depth != FullDepth()) for job, depth in zip(jobs, depths, strict=True)]
        order = sorted(range(len(group)), key=group.__getitem__)
        found = group_round(tuple(group[k] for k in order), "planned" if share.depths else "published")
        often = dict(zip(order, found.iterations, strict=True))
        return tuple(
            Speed(
                rate_of(found.time_us / often[k] / float(self._factor(share, job))),
                is_raw=found.staircase and depth != FullDepth(),
            )
            for k, (job, depth) in enumerate(zip(jobs, depths, strict=True))
        )


def stages(source: Path | None, cluster: Cluster, stages: Mapping[str, StageTimes], speeds: str = "") -> Stages:
    """Return the performance model of the stages that a trace states.

    `source`: none, as the figures stand in the trace. `speeds`: speeds of the types of GPU, in words; empty where the
    cluster has one type.
    """
    if source is not None:
        message = "performance 'stages' takes its figures from the trace, not from a source of its own"
        raise unsupported("performance", message)
    if not stages:
        message = "performance 'stages' needs a trace that gives the stages of its models, as Muri's do"
        raise missing_option("performance", message)
    return Stages(stages, cluster, speeds_of(speeds, cluster))
