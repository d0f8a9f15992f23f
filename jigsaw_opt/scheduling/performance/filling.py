"""Background jobs in the holes of a foreground job, for the performance of profiled models.

The jobs of a share become a cyclic instance on the GPUs of the share alone. The foreground has all of them, and each
background job one that it shares with no other background job (`jigsaw_opt.planning.fill.insert`). The holes behind an
iteration are the same on all GPUs, so what a job gets depends on which models there are, not on how many jobs of each:
plans are made for a model of each kind, checked, and remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from jigsaw_opt.planning.fill import insert
from jigsaw_opt.problem.cluster import Cluster, Routes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.places import Place, Places

__all__ = ["FilledShares"]

_FOREGROUND = "foreground"
_Kind = tuple[object, ...]


class FilledShares:
    """Mean times of iterations in shares with a foreground job, worked out when asked for and remembered."""

    def __init__(self, cluster: Cluster, models: Mapping[str, Model]) -> None:
        self.cluster, self.models = cluster, models
        self._places = Places(cluster)
        self._routes = Routes(cluster)
        self._found: dict[_Kind, Mapping[str, Fraction] | None] = {}

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: a foreground without all GPUs, wide or too many jobs, or no room.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        front, *back = jobs
        if front.gpus != len(share.gpus):
            return f"the foreground job asks for {front.gpus} GPUs and the share has {len(share.gpus)}"
        if not 1 <= len(back) <= front.gpus or any(job.gpus > 1 for job in back):
            return "background jobs of a share have one GPU each, and not the same one"
        return None if self._times(share, jobs) is not None else "memory or holes do not suffice for these jobs"

    def iteration_us(self, share: Share, jobs: Sequence[TraceJob]) -> Sequence[Fraction]:
        """Return the mean time of an iteration of each job.

        Microseconds of each job, in the order of `jobs`.
        """
        found = self._times(share, jobs)
        assert found is not None  # the engine has asked `refuses`
        _, *back = jobs
        return (found[_FOREGROUND], *(found[_named(job.model)] for job in back))

    def _times(self, share: Share, jobs: Sequence[TraceJob]) -> Mapping[str, Fraction] | None:
        front, *back = jobs
        models, place = tuple(sorted({job.model for job in back})), self._places.of(share.gpus)
        assert share.slowdown is not None
        key = (front.model, models, share.slowdown, *self._kind(place))
        if key not in self._found:
            self._found[key] = self._insert(front.model, models, place, share.slowdown)
        return self._found[key]

    def _kind(self, place: Place) -> _Kind:
        """Return what plans depend on of the servers: their hardware, the GPUs used of each, and what joins them."""
        servers = sorted((repr(altered(self.cluster.servers[k], name="", gpus=used)) for k, used in place))
        channel = self._routes.channel(dict(place))
        return tuple(servers), channel and (channel.rate, channel.latency_us)

    def _insert(self, front: str, back: Sequence[str], place: Place, slowdown: float) -> Mapping[str, Fraction] | None:
        cluster = self._places.part(place)
        jobs = (Job(_FOREGROUND, front, cluster.gpu_count, 1), *(Job(_named(model), model, 1, 1) for model in back))
        models = {name: self.models[name] for name in (front, *back)}
        found = insert(Instance("share", cluster, models, jobs, "cyclic", "period"), _FOREGROUND, slowdown)
        if found is None:
            return None
        instance, plan = found
        return {job.name: Fraction(plan.objective, job.iterations) for job in instance.data_parallel}


def _named(model: str) -> str:
    return f"background {model}"
