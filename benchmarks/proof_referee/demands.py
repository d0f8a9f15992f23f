"""Spans of the work of jobs and of their kinds of placement on GPUs and links (docs/proofs.md, `intervals`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product

from .common import Document, transfer_us, up
from .facts import JobFacts, Kind, Site, envelope
from .resources import Resource

Span = tuple[int, int, int, int]
"""Rate, length, and distances to the start and the end of the iteration."""


@dataclass(frozen=True)
class Demand:
    """The work of a job on a resource."""

    work: int
    spans: list[Span]
    room: Span

    def rest(self, n: int) -> int:
        """Return the work that is in no span."""
        return self.work - n * sum(u * a for u, a, *_ in self.spans)


class Placed(JobFacts):
    """The facts of a job for one kind of placement: some numbers of workers by kind of GPU."""

    def __init__(
        self, instance: Document, whole: JobFacts, workers: list[dict[Kind, int]], channel: tuple[int, int], alone: bool
    ) -> None:
        super().__init__(instance, whole.job)
        self.workers = workers
        most = {kind: max(some[kind] for some in workers) for kind in workers[0]}
        of = {server["name"]: (server["gpu_type"], server["gpu_memory"]) for server in self.cluster["servers"]}
        enough = self.w if alone else 1
        usable = {
            name: min(most[of[name]], count)
            for name, count in whole.usable.items()
            if most.get(of[name], 0) >= 1 and count >= enough
        }
        gpus = {kind: count for kind, count in most.items() if count}
        kinds = [kind for kind in whole.kinds if kind in gpus]
        firsts = sorted({t for t, size in kinds if self.deepest(size) == self.D})
        sites = [Site(gpus, first, *channel) for first in firsts]
        levels = range(1, self.D + 1)
        sites = [site for site in sites if all(self._ready_at(site, b) is not None for b in levels)]
        self.__dict__.update(usable=usable, kinds=kinds, channel=None if alone else channel, sites=sites)

    def tail_on(self, kind: Kind, level: int) -> int:
        """Return the tail of a level on one kind alone, 0 if it does not take the level."""
        if level > self.deepest(kind[1]):
            return 0
        return min(max(0, self.longest(kind[0], level, site) - self.p(kind[0], level)) for site in self.sites)


def placements(instance: Document, job: JobFacts) -> list[JobFacts]:
    """Return the kinds of placement of a job; the job itself where it is its only kind."""
    if any("restart_us" in one for one in instance["jobs"] if "model" in one):
        return [job]
    if not job.kinds:
        return [job]
    found: list[Placed] = []
    servers: dict[Kind, list[Document]] = {}
    for server in job.cluster["servers"]:
        if server["name"] in job.usable:
            servers.setdefault((server["gpu_type"], server["gpu_memory"]), []).append(server)
    for kind, some in servers.items():
        here = [server for server in some if job.usable[server["name"]] >= job.w]
        if here:
            channel = max(s["fabric_bandwidth"] for s in here), min(s["fabric_latency_us"] for s in here)
            found.append(Placed(instance, job, [{kind: job.w}], channel, alone=True))
    if job.channel is not None:
        rooms = [min(job.w, sum(job.usable[server["name"]] for server in some)) for some in servers.values()]
        if _choices(rooms, job.w) > 10000:
            return [job]
        single = [len(some) == 1 for some in servers.values()]
        numbers = [
            some
            for some in product(*(range(room + 1) for room in rooms))
            if sum(some) == job.w and not any(x == job.w and one for x, one in zip(some, single))
        ]
        size = -(-len(numbers) // 9)
        for first in range(0, len(numbers), size or 1):
            workers = [dict(zip(servers, some)) for some in numbers[first : first + size]]
            found.append(Placed(instance, job, workers, job.channel, alone=False))
    return [one for one in found if one.sites] or [job]


def _choices(rooms: list[int], workers: int) -> int:
    """Return how many numbers of workers there are, each at most its room."""
    ways = [1] + [0] * workers
    for room in rooms:
        ways = [sum(ways[max(0, x - room) : x + 1]) for x in range(workers + 1)]
    return ways[workers]


def demand(resource: Resource, job: JobFacts, as_a_whole: bool) -> Demand | None:
    """Return the demand of a job as a whole, or of a kind of placement; None where it has none."""
    if not job.kinds:
        return None
    if resource.kind == "links":
        return _on_links(resource, job)
    if isinstance(job, Placed):
        return _of_placement(resource.prices, job)
    return _of_whole(resource, job) if as_a_whole else None


def _on_links(resource: Resource, job: JobFacts) -> Demand | None:
    needed = resource.needed_links(job, apart=isinstance(job, Placed))
    if needed is None:
        return None
    k, rate, latency = needed
    times, spans, end = job.transfers(rate, latency), [], 0
    for b, time in enumerate(times, 1):
        start = max(end, job.shortest(b))
        spans.append((k, time, start, sum(times[b:])))
        end = start + time
    longest = sum(transfer_us(job.job, job.model, b, job.w, rate, latency) for b in range(1, job.D + 1))
    room = (k, max(0, longest - sum(times)), job.shortest(1), 0)
    return Demand(k * job.all_transfers(rate, latency), spans, room)


def _of_whole(resource: Resource, job: JobFacts) -> Demand:
    price = max(resource.prices.values())
    cost = resource.cost(job)
    levels = job.least_levels
    spans = [
        (levels.count(d) * price, cost[d - 1] // price, 0, job.tail_of(d)) for d in range(1, job.D + 1) if d in levels
    ]
    most = sum(cost[d - 1] for d in job.fixed) if job.fixed is not None else job.w * cost[-1]
    over = most + resource.overflow(job) - sum(u * a for u, a, *_ in spans)
    rate = job.w * price
    return Demand(resource.demand(job).work, spans, (rate, up(Fraction(over, rate)), 0, job.tail))


Costs = dict[Kind, list[int]]
"""By kind of GPU, what levels 1, 2, ... cost."""


def _of_placement(prices: dict[Kind, int], job: Placed) -> Demand | None:
    if not any(kind in prices for kind in job.kinds):
        return None
    levels, spans = sorted(job.least_levels), []
    times = {kind: [job.p(kind[0], min(d, job.deepest(kind[1]))) for d in range(1, job.D + 1)] for kind in job.kinds}
    f = {kind: [prices.get(kind, 0) * time for time in times[kind]] for kind in job.kinds}
    for kind in job.kinds:
        if kind in prices:
            taken = levels[: min(x[kind] for x in job.workers)]
            spans += [
                (taken.count(d) * prices[kind], times[kind][d - 1], 0, job.tail_on(kind, d)) for d in sorted(set(taken))
            ]
    in_spans = sum(u * a for u, a, *_ in spans)
    if job.fixed is not None:
        negative = {kind: [-cost for cost in costs] for kind, costs in f.items()}
        work = min(job.n * _least_cost(job.fixed, x, f) for x in job.workers)
        most = max(-_least_cost(job.fixed, x, negative) for x in job.workers)
    else:
        work = min(_least_free_work(job, x, f) for x in job.workers)
        most = max(sum(x[kind] * f[kind][-1] for kind in f) for x in job.workers)
    rate = max(sum(prices.get(kind, 0) * count for kind, count in x.items()) for x in job.workers)
    room = (rate, max(0, up(Fraction(most - in_spans, rate))), 0, job.tail)
    return Demand(max(job.n * in_spans, work), spans, room)


def _least_cost(levels: Sequence[int], x: dict[Kind, int], f: Costs) -> int:
    """Return the least cost of fixed levels on so many GPUs of each kind."""
    some = [kind for kind in f if x[kind]]
    if len(some) != 2:
        return sum(min(f[kind][d - 1] for kind in some) for d in levels)
    one, other = some
    less = sorted(f[one][d - 1] - f[other][d - 1] for d in levels)
    return sum(f[other][d - 1] for d in levels) + sum(less[: x[one]])


def _least_free_work(job: Placed, x: dict[Kind, int], f: Costs) -> int:
    """Return the least work under free depth on so many GPUs of each kind."""
    coverage, total = job.coverage_and_total
    rises = sorted(f[kind][-1] - f[kind][0] for kind in f for _ in range(x[kind]))
    sides = [
        (Fraction(fb - fa, b - a), (b - a) * job.n * x[kind])
        for kind in f
        for (a, fa), (b, fb) in pairwise(envelope(f[kind], 1))
    ]
    more, cost = max(0, total - job.n * (job.w + coverage * (job.D - 1))), Fraction(0)
    for slope, room in sorted(sides):
        cost += slope * min(more, room)
        more -= min(more, room)
    return job.n * sum(x[kind] * f[kind][0] for kind in f) + job.n * sum(rises[:coverage]) + up(cost)
