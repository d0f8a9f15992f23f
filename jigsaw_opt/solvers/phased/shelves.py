"""Which jobs are on the GPUs at the same time, where they are, which share anything, and where others may go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from jigsaw_opt.problem.cluster import Channel, Routes
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.costs import transfer_us
from jigsaw_opt.problem.depth import FreeDepth
from jigsaw_opt.problem.instance import Instance, in_a_period
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob

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
    if isinstance(part.depth, FreeDepth) and part.depth.balance is not None:
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
    """Return names of jobs that share a GPU, link or capacity, directly or by others, in the instance's order.

    `placements`: by name of a job that counts, the names of its workers' GPUs.
    """
    from networkx.utils import UnionFind

    joined: Any = UnionFind()
    routes = routes or Routes(instance.cluster)
    groups: defaultdict[object, list[str]] = defaultdict(list)
    placed = [job for job in instance.jobs if job.name in placements]
    for job in placed:
        joined.union(("job", job.name), *_resources(instance, job, routes, placements[job.name]))
    for job in placed:
        groups[joined["job", job.name]].append(job.name)
    return list(groups.values())


def _resources(
    instance: Instance, job: Job | TaskGraphJob, routes: Routes, gpus: Sequence[str]
) -> list[tuple[str, object]]:
    servers = [routes.cluster.gpus.place_of[gpu][0] for gpu in gpus]
    if isinstance(job, Job):
        channels = [routes.under(job.route_policy).channel(Counter(servers))]
    else:
        graph = compile_task_graph(job)
        # Operations of a task graph are numbered blocks first, so that transfers begin at `blocks`.
        ends = ((k, [servers[slot] for slot in graph.takes_part[k]]) for k in range(graph.blocks, graph.size))
        channels = [graph.channel(operation, own, routes) for operation, own in ends]
    links = {link for channel in channels if channel is not None for link in channel.links}
    used = {routes.cluster.servers[server].name for server in servers}
    caps = [cap.name for cap in routes.cluster.capacities if not used.isdisjoint(cap.servers)]
    return [
        *(("GPU", gpu) for gpu in gpus),
        *(("link", link) for link in sorted(links)),
        *(("power cap", name) for name in caps),
        *(("held", own.name) for own in instance.scarce_capacities if job.name in own.amounts),
    ]


_Resource = tuple[str, object]


class Sharing:
    """Jobs with their GPUs, and what shares anything with them.

    Groups that have begun side by side cannot become one: phases of a group follow one another
    (specification: phased-plans). So jobs that are placed here never join two of them.

    `instance`: all jobs, with the iterations that are left. `begun`: for each group that has begun, the GPUs of its
    jobs by name, those of jobs that have ended too.
    """

    def __init__(self, instance: Instance, begun: Sequence[Mapping[str, Sequence[str]]]) -> None:
        from networkx.utils import UnionFind

        self._instance, self._routes = instance, Routes(instance.cluster)
        self._server = {name: s for name, (s, _) in instance.cluster.gpus.place_of.items()}
        jobs = {job.name: job for job in instance.data_parallel}
        self._joined: Any = UnionFind()
        self._count = len(begun)
        self._load_us: Counter[_Resource] = Counter()
        self.placements: dict[str, tuple[str, ...]] = {}
        # Whatever runs on these GPUs is under the cap.
        for cap in instance.cluster.capacities:
            under = [("GPU", gpu) for gpu in self._server if gpu.rsplit("/", 1)[0] in cap.servers]
            self._joined.union(("power cap", cap.name), *under)
        for number, placements in enumerate(begun):
            # Jobs that have ended join their group too: later phases of the group follow theirs.
            for name, gpus in placements.items():
                self._joined.union(("begun", number), *self._used(jobs[name], gpus))

    def add(self, job: Job, gpus: Sequence[str]) -> bool:
        """Place a job; return False where it would join two groups that have begun, or its GPUs are not joined."""
        used = self._used(job, gpus)
        if self._channel(job, gpus) is None or len(self._groups(used)) > 1:
            return False
        self._joined.union(("job", job.name), *used)
        self._load_us.update(self._work_us(job, gpus))
        self.placements[job.name] = tuple(gpus)
        return True

    def place(self, job: Job) -> bool:
        """Place a job where GPUs and links have least to do with it; return False where it can be nowhere."""
        candidates = {gpus for gpus in self._candidates(job) if len(self._groups(self._used(job, gpus))) <= 1}
        best = min(candidates, key=lambda gpus: (self._last_us(job, gpus), gpus), default=None)
        return best is not None and self.add(job, best)

    def groups(self) -> Iterator[tuple[list[str], int | None]]:
        """Yield names of jobs that share anything, in the instance's order, with the group that they go on with."""
        found, begun = defaultdict[_Resource, list[str]](list), self._begun()
        for job in self._instance.jobs:
            if job.name in self.placements:
                found[self._joined["job", job.name]].append(job.name)
        for leader, names in found.items():
            yield names, begun.get(leader)

    def _candidates(self, job: Job) -> Iterator[tuple[str, ...]]:
        """Yield sets of GPUs for a job: those of one server, those of few servers, and those with least to do.

        They are sought for each group that has begun, with the GPUs of no group, and among the latter alone.
        """
        types = self._instance.models[job.model].gpu_types
        servers = self._instance.cluster.servers
        usable = [gpu for gpu, s in self._server.items() if servers[s].gpu_type in types]
        begun = self._begun()
        of = {gpu: begun.get(self._joined["GPU", gpu]) for gpu in usable}
        for group in dict.fromkeys((None, *of.values())):
            ranked = sorted(
                (resource for resource in usable if of[resource] in (None, group)),
                key=lambda resource: self._load_us["GPU", resource],
            )
            rows: defaultdict[int, list[str]] = defaultdict(list)
            for gpu in ranked:
                rows[self._server[gpu]].append(gpu)
            large = sorted(rows.values(), key=len, reverse=True)
            orders = [ranked, [gpu for row in large for gpu in row], *rows.values()]
            yield from (tuple(order[: job.workers]) for order in orders if len(order) >= job.workers)

    def _last_us(self, job: Job, gpus: Sequence[str]) -> tuple[int, int]:
        """Return how long the busiest of the resources is busy with the job, and all of them together."""
        # Larger than any load in microseconds, so that such GPUs are chosen last; `add` then refuses them.
        if self._channel(job, gpus) is None:
            return 2**63, 0
        loads = [self._load_us[resource] + own for resource, own in self._work_us(job, gpus).items()]
        return max(loads), sum(loads)

    def _work_us(self, job: Job, gpus: Sequence[str]) -> dict[_Resource, int]:
        """Return the time that all iterations of a job take of each GPU and link at its largest level."""
        model, servers = self._instance.models[job.model], self._instance.cluster.servers
        work: dict[_Resource, int] = {}
        for gpu in gpus:
            work["GPU", gpu] = job.iterations * job.block_us(model.block_us(servers[self._server[gpu]].gpu_type))[-1]
        channel = self._channel(job, gpus)
        if channel is not None and job.workers > 1:
            each = (
                transfer_us(size, job.workers, job.workers, channel.rate, channel.latency_us)
                for size in job.sent_bytes(model.bucket_bytes())
            )
            total = job.iterations * sum(each)
            work |= {("link", link): total for link in channel.links}
        return work

    def _used(self, job: Job, gpus: Sequence[str]) -> list[_Resource]:
        return _resources(self._instance, job, self._routes, gpus)

    def _channel(self, job: Job, gpus: Sequence[str]) -> Channel | None:
        return self._routes.under(job.route_policy).channel(Counter(self._server[gpu] for gpu in gpus))

    def _groups(self, resources: Iterable[_Resource]) -> set[int]:
        """Return the groups that have begun and have some of these resources."""
        begun = self._begun()
        return {begun[leader] for leader in map(self._joined.__getitem__, resources) if leader in begun}

    def _begun(self) -> dict[_Resource, int]:
        """Return the number of each group that has begun, by the element that stands for its set."""
        return {self._joined["begun", number]: number for number in range(self._count)}
