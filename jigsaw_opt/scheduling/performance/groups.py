"""Timetables of jobs that share GPUs, for the performance of profiled models.

The jobs of a share become a cyclic instance on the GPUs of the share alone, and the speeds follow from its checked
plan. With fixed rules, which is a staircase whose every worker keeps its level for ever or full depth, a period has one
iteration of each job; if a job is free to choose levels anew in every iteration, it has several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Depth, FreeDepth, Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.places import Place, Places
from jigsaw_opt.solvers.allocation.packing import ITERATIONS, shortest_period

__all__ = ["Timetabled"]


class Timetabled:
    """Timetables of shares, found when asked for and remembered."""

    def __init__(self, cluster: Cluster, models: Mapping[str, Model]) -> None:
        self.cluster, self.models = cluster, models
        self._places = Places(cluster)
        self._periods: dict[object, Fraction | None] = {}

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: no timetable was found, for want of memory as a rule."""
        return None if self._period(share, jobs) is not None else "no timetable of these jobs was found"

    def iteration_us(self, share: Share, jobs: Sequence[TraceJob]) -> Sequence[int | Fraction]:
        """Return the mean time of an iteration, the same for all jobs: their iterations take turns one to one.

        Microseconds of each job, in the order of `jobs`.
        """
        period = self._period(share, jobs)
        assert period is not None  # the engine has asked `refuses`
        return (period,) * len(jobs)

    def _period(self, share: Share, jobs: Sequence[TraceJob]) -> Fraction | None:
        place = self._places.of(share.gpus)
        depths = [share.depth(job) for job in share.jobs]
        members = sorted(((job.model, job.gpus, depth) for job, depth in zip(jobs, depths, strict=True)), key=str)
        key = (tuple(members), self._kind(place))
        if key not in self._periods:
            self._periods[key] = self._search(place, members)
        return self._periods[key]

    def _kind(self, place: Place) -> object:
        """Return what a timetable depends on: of one server its hardware, of several which they are."""
        if len(place) > 1:
            return place
        server, used = self.cluster.servers[place[0][0]], place[0][1]
        return altered(server, name="", gpus=used)

    def _search(self, place: Place, members: Sequence[tuple[str, int, Depth]]) -> Fraction | None:
        free = any(isinstance(depth, FreeDepth) for _, _, depth in members)
        iterations = ITERATIONS if free else 1
        jobs = tuple(Job(f"j{k}", model, gpus, iterations, depth=d) for k, (model, gpus, d) in enumerate(members))
        models = {model: self.models[model] for model, _, _ in members}
        period = shortest_period(Instance("share", self._places.part(place), models, jobs, "cyclic", "period"))
        return None if period is None else Fraction(period, iterations)
