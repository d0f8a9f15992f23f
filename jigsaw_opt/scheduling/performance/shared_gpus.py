"""Timetables of jobs that share GPUs, or fill the holes of a foreground job, for profiled models.

The jobs of a share become a cyclic instance on the GPUs of the share alone, and the speeds follow from its checked
plan. With fixed rules, which is a staircase whose every worker keeps its level for ever or full depth, a period has one
iteration of each job; if a job is free to choose levels anew in every iteration, it has several.

A foreground job has all GPUs of its share, and each background job one that it shares with no other background job
(`jigsaw_opt.planning.fill.insert`). The holes behind an iteration are the same on all GPUs, so what a job gets depends
on which models there are, not on how many jobs of each: plans are made for a model of each kind, checked, and
remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

from jigsaw_opt.planning.fill import insert
from jigsaw_opt.problem.cluster import Cluster, Routes
from jigsaw_opt.problem.depth import Depth, FreeDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.solvers.allocation.packing.generation import ITERATIONS, shortest_period

Place = tuple[tuple[int, int], ...]
"""Servers by number with the GPUs used of each, ascending."""


class Places:
    """The places of GPUs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self._routes = cluster, Routes(cluster)
        self._server_of = cluster.gpus.server_of

    def of(self, gpus: Iterable[int]) -> Place:
        """Return the place of some GPUs, given by their numbers in the cluster."""
        return tuple(sorted(Counter(self._server_of[gpu] for gpu in gpus).items()))

    def part(self, place: Place) -> Cluster:
        """Return the servers of a place with the GPUs used of them, and the links between them.

        Other servers that routes between them pass through are switches there.
        """
        cluster = self.cluster
        servers = tuple(altered(cluster.servers[number], gpus=used) for number, used in place)
        if len(servers) == 1:
            return Cluster(servers)
        own, names = {server.name for server in servers}, set(cluster.switches)
        for first, second in combinations((number for number, _ in place), 2):
            for link in self._routes.between(first, second) or ():
                names.update(cluster.links[link].ends)
        passed = tuple(server.name for server in cluster.servers if server.name in names - own)
        links = tuple(link for link in cluster.links if (own | names).issuperset(link.ends))
        return Cluster(servers, (*cluster.switches, *passed), links)


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
