"""Which jobs are on the GPUs at the same time, where they are, and which of them share anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd

from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.instance import Instance, in_a_period
from jigsaw_opt.problem.job import FreeDepth, Job
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob

__all__ = ["Place", "cyclic_part", "iteration_counts", "placed_shelves", "sharing_groups"]

Place = Callable[[Instance], Plan | None]
"""A plan of a cyclic instance, or None where none was found."""


def cyclic_part(instance: Instance, counts: Mapping[str, int]) -> Instance:
    """Return some jobs of an instance on the cyclic horizon, each with its part of what `balance` allows.

    Differences of the level totals of two workers add up over all repetitions (specification: balance). In a period
    with some of its iterations, a job has the same share of the difference that it may have, rounded down. So phases
    of such periods keep the balance together, however often each is repeated.
    """
    jobs = tuple(_in_a_period(job, counts[job.name]) for job in instance.jobs if job.name in counts)
    return altered(instance, jobs=jobs, horizon="cyclic", objective="period")


def _in_a_period(job: Job | TaskGraphJob, count: int) -> Job | TaskGraphJob:
    """Return a job with some of its iterations in a period, and their share of the balance."""
    part = in_a_period(job, count)
    if isinstance(part, Job) and isinstance(part.depth, FreeDepth) and part.depth.balance is not None:
        return altered(part, depth=replace(part.depth, balance=part.depth.balance * count // job.iterations))
    return part


def iteration_counts(wanted: Mapping[str, float], most: int = 4) -> dict[str, int]:
    """Return iterations of each job in a period, in about a wanted ratio, without a common divisor.

    `wanted`: by name of a job, above 0.
    """
    largest = max(wanted.values(), default=1)
    counts = {name: max(1, round(most * value / largest)) for name, value in wanted.items()}
    common = gcd(*counts.values())
    return {name: count // common for name, count in counts.items()}


def placed_shelves(
    instance: Instance, jobs: Sequence[Job | TaskGraphJob], place: Place, most: int
) -> list[Plan] | None:
    """Return cyclic plans that have every job once; jobs of one plan fit on the cluster together.

    `place`: makes a cyclic plan of some jobs. Where it finds none, they are halved.
    """
    # In the ratio of their iterations, jobs that run together also end together.
    counts = iteration_counts({job.name: job.iterations for job in jobs}, most)
    plan = place(cyclic_part(instance, counts))
    if plan is not None:
        return [plan]
    if len(jobs) == 1:
        return None
    half = len(jobs) // 2
    first, second = (placed_shelves(instance, part, place, most) for part in (jobs[:half], jobs[half:]))
    return first + second if first is not None and second is not None else None


def sharing_groups(
    instance: Instance, placements: Mapping[str, Sequence[str]], routes: Routes | None = None
) -> list[list[str]]:
    """Return names of jobs that share a GPU, a link or a power cap, directly or by others, in the instance's order.

    `placements`: by name of a job that counts, the names of its workers' GPUs.
    """
    leader: dict[object, object] = {}

    def find(thing: object) -> object:
        # Union-find: jobs, GPUs and links are the elements, and a use of a resource joins two sets.
        while leader.setdefault(thing, thing) != thing:
            leader[thing] = thing = leader[leader[thing]]
        return thing

    routes, asked = routes or Routes(instance.cluster), {job.name: job for job in instance.jobs}
    for name, gpus in placements.items():
        for used in _resources(asked[name], routes, gpus):
            leader[find(used)] = find(("job", name))
    groups: defaultdict[object, list[str]] = defaultdict(list)
    for one in instance.jobs:
        if one.name in placements:
            groups[find(("job", one.name))].append(one.name)
    return list(groups.values())


def _resources(job: Job | TaskGraphJob, routes: Routes, gpus: Sequence[str]) -> list[tuple[str, object]]:
    number = {server.name: number for number, server in enumerate(routes.cluster.servers)}
    servers = [number[gpu.rsplit("/", 1)[0]] for gpu in gpus]
    channels = [routes.under(job.route_policy).channel(Counter(servers))] if isinstance(job, Job) else []
    # Operations of a task graph are numbered blocks first, so that transfers begin at `blocks`.
    graph = compile_task_graph(job) if isinstance(job, TaskGraphJob) else None
    if graph is not None:
        for operation in range(graph.blocks, graph.size):
            ends = [servers[slot] for slot in graph.takes_part[operation]]
            channels.append(graph.channel(operation, ends, routes))
    links = {link for channel in channels if channel is not None for link in channel.links}
    used = {routes.cluster.servers[server].name for server in servers}
    caps = [cap.name for cap in routes.cluster.power_caps or () if not used.isdisjoint(cap.servers)]
    return [
        *(("GPU", gpu) for gpu in gpus),
        *(("link", link) for link in sorted(links)),
        *(("power cap", name) for name in caps),
    ]
