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
from jigsaw_opt.problem.cluster import Cluster, Routes, Server
from jigsaw_opt.problem.depth import Depth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.solvers.allocation.packing.generation import MeanIteration, fastest_iterations, iterations_of

Place = tuple[tuple[int, int], ...]
"""Servers by number with the GPUs used of each, ascending."""


class SharedGpus:
    """Mean times of iterations of jobs that share GPUs, worked out when asked for and remembered."""

    def __init__(self, cluster: Cluster, models: Mapping[str, Model]) -> None:
        self.cluster, self.models, self.routes = cluster, models, Routes(cluster)
        self._server_of = cluster.gpus.server_of
        self._turns: dict[object, Sequence[MeanIteration] | None] = {}
        self._filled: dict[object, Mapping[str, Fraction] | None] = {}

    def place(self, gpus: Iterable[int]) -> Place:
        """Return the place of some GPUs, given by their numbers in the cluster."""
        return tuple(sorted(Counter(self._server_of[gpu] for gpu in gpus).items()))

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: no timetable, or a foreground without all GPUs, wide or too many jobs.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        front, *back = jobs
        if share.slowdown is not None and front.gpus != len(share.gpus):
            return f"the foreground job asks for {front.gpus} GPUs and the share has {len(share.gpus)}"
        if share.slowdown is not None and (not 1 <= len(back) <= front.gpus or any(job.gpus > 1 for job in back)):
            return "background jobs of a share have one GPU each, and not the same one"
        if self.iterations(share, jobs) is not None:
            return None
        filled = "memory or holes do not suffice for these jobs"
        return "no timetable of these jobs was found" if share.slowdown is None else filled

    def iterations(self, share: Share, jobs: Sequence[TraceJob]) -> Sequence[MeanIteration] | None:
        """Return the iterations of each job; None where no timetable was found, for want of memory as a rule.

        They are in the order of `jobs`. Without a foreground iterations take turns one to one.
        """
        place = self.place(share.gpus)
        if share.slowdown is None:
            depths = map(share.depth, share.jobs)
            members = [(job.model, job.gpus, depth) for job, depth in zip(jobs, depths, strict=True)]
            order = sorted(range(len(jobs)), key=lambda k: str(members[k]))
            key: object = (tuple(members[k] for k in order), self._kind(place))
            if key not in self._turns:
                self._turns[key] = self._in_turn(place, [members[k] for k in order])
            turns = self._turns[key]
            return turns and [turns[order.index(k)] for k in range(len(jobs))]
        front, *back = jobs
        models = tuple(sorted({job.model for job in back}))
        key = (front.model, models, share.slowdown, self._kind_filled(place))
        if key not in self._filled:
            self._filled[key] = self._insert(front.model, models, place, share.slowdown)
        found = self._filled[key]
        names = (_FOREGROUND, *(_named(job.model) for job in back))
        return None if found is None else [MeanIteration(found[name], Fraction(1)) for name in names]

    def _part(self, place: Place) -> Cluster:
        """Return the servers of a place with the GPUs used of them, and the links between them.

        Other servers that routes between them pass through are switches there.
        """
        cluster = self.cluster
        servers = tuple(altered(cluster.servers[number], gpus=used) for number, used in place)
        if len(servers) == 1:
            return Cluster(servers)
        own, names = {server.name for server in servers}, set(cluster.switches)
        for first, second in combinations((number for number, _ in place), 2):
            for link in self.routes.between(first, second) or ():
                names.update(cluster.links[link].ends)
        passed = tuple(server.name for server in cluster.servers if server.name in names - own)
        links = tuple(link for link in cluster.links if (own | names).issuperset(link.ends))
        return Cluster(servers, (*cluster.switches, *passed), links)

    def _kind(self, place: Place) -> object:
        """Return what a timetable depends on: of one server its hardware, of several which they are."""
        return place if len(place) > 1 else self._hardware(*place[0])

    def _kind_filled(self, place: Place) -> object:
        """Return what plans depend on of the servers: their hardware, the GPUs used of each, and what joins them."""
        channel = self.routes.channel(dict(place))
        return tuple(sorted(repr(self._hardware(*one)) for one in place)), channel and (
            channel.rate,
            channel.latency_us,
        )

    def _hardware(self, number: int, used: int) -> Server:
        return altered(self.cluster.servers[number], name="", gpus=used)

    def _in_turn(self, place: Place, members: Sequence[tuple[str, int, Depth]]) -> Sequence[MeanIteration] | None:
        iterations = iterations_of([depth for _, _, depth in members])
        jobs = tuple(Job(f"j{k}", model, gpus, iterations, depth=d) for k, (model, gpus, d) in enumerate(members))
        return fastest_iterations(self._instance(place, jobs))

    def _insert(self, front: str, back: Sequence[str], place: Place, slowdown: float) -> Mapping[str, Fraction] | None:
        first = Job(_FOREGROUND, front, sum(used for _, used in place), 1)
        jobs = (first, *(Job(_named(model), model, 1, 1) for model in back))
        found = insert(self._instance(place, jobs), _FOREGROUND, slowdown)
        return found and {job.name: Fraction(found[1].objective, job.iterations) for job in found[0].data_parallel}

    def _instance(self, place: Place, jobs: tuple[Job, ...]) -> Instance:
        models = {job.model: self.models[job.model] for job in jobs}
        return Instance("share", self._part(place), models, jobs, "cyclic", "period")


_FOREGROUND = "foreground"


def _named(model: str) -> str:
    return f"background {model}"
