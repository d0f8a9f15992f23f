"""What iterations take of GPUs and links in every plan, and the best rate that this leaves room for.

Each job has a set of servers whose type and memory suffice for it. For each such set, the blocks of the jobs that are
confined to it take no more than its GPUs have in a period. Where a data-parallel job has more workers than any server
has GPUs, its transfers take a link at least, two where each link ends at a switch. What fits at a period is a
fractional knapsack for each of these resources, a relaxation of every plan (Dantzig, *Discrete-variable extremum
problems*, Operations Research 5, 1957).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.compiled.critical import least_levels, shortest_transfers, usable_gpus
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations, compile_instance
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData

Vector = tuple[int, ...]
"""Iterations in a period, by background job."""


@dataclass(frozen=True, slots=True)
class SharedResource:
    """GPUs or links, and what is taken of their time.

    `taken_us`: what the foreground takes in a period, at least. `each_us`: for each background job, what an iteration
    takes, at least.
    """

    count: int
    taken_us: int
    each_us: tuple[int, ...]

    def least_period_us(self, vector: Vector) -> int:
        """Return the period that the work of an iteration vector takes, at least."""
        work = self.taken_us + sum(k * each for k, each in zip(vector, self.each_us, strict=True))
        return ceil_div(work, self.count)


class Loads:
    """Least loads of an instance.

    `instance`: A cyclic instance. The cycle-time limit of a background job asks for a least rate. `allowed_us`: the
    period that is allowed, in microseconds. `least_us`: A period that the foreground alone cannot beat. `stop`: whether
    caps are good enough; asked before each step that lowers one. `alike`: background jobs, by number, that differ in
    their names alone, class by class. `caps`: for each background job, most iterations in a period that is allowed.
    `instance`: the instance without the cycle-time limits of background jobs. `paces_us`: for each background job, its
    cycle-time limit in microseconds, or None.
    """

    def __init__(
        self,
        instance: Instance,
        foreground: Sequence[str],
        background: Sequence[str],
        allowed_us: int,
        least_us: int,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        own = {job.name: job for job in instance.jobs if job.name in set(background)}
        self.paces_us = tuple(own[name].pace_us for name in background)
        jobs = tuple(altered(job, pace_us=None) if job.name in own else job for job in instance.jobs)
        self.instance, self.background = altered(instance, jobs=jobs), background
        self.allowed_us, self.least_us = allowed_us, max(1, least_us)
        self.weights = [job.weight for job in own.values()]
        once = {job.name: 1 if job.name in own else job.iterations for job in jobs}
        self._stop = stop
        self._once = _JobLoads(compile_instance(restricted(self.instance, once)))
        self.resources = self._resources(foreground)
        self.alike = self._classes()
        caps = {index: cap for own in self.alike for cap in (self._cap(own[0]),) for index in own}
        self.caps = tuple(caps[index] for index in range(len(background)))

    def value(self, vector: Vector) -> int:
        """Return weighted iterations."""
        return sum(k * weight for k, weight in zip(vector, self.weights, strict=True))

    def longest_us(self, vector: Vector) -> int:
        """Return the longest period, in microseconds, in which these iterations keep all least rates."""
        limits = (pace * k for k, pace in zip(vector, self.paces_us, strict=True) if pace is not None)
        return min([self.allowed_us, *limits])

    def keeps_rates(self, vector: Vector, period_us: int) -> bool:
        """Return whether these iterations a period keep all least rates."""
        return all(pace is None or period_us <= pace * k for k, pace in zip(vector, self.paces_us, strict=True))

    def needed(self, period_us: int) -> Vector:
        """Return the fewest iterations that keep all least rates in a period."""
        return tuple(0 if pace is None else ceil_div(period_us, pace) for pace in self.paces_us)

    def least_needed(self) -> tuple[Vector, int]:
        """Return the fewest iterations that keep all least rates in any period that suffices for their work, and that.

        No plan that keeps the rates has fewer iterations of a job, or a shorter period. A period above `allowed_us`
        says that there is none; then the iterations are those of a shorter one.
        """
        period, vector = 0, self.needed(self.least_us)
        while (longer := self.least_period_us(vector)) > period and longer <= self.allowed_us:
            period, vector = longer, self.needed(longer)
        return vector, longer

    def canonical(self, vector: Vector) -> Vector:
        """Return the vector where of alike jobs an earlier one has no fewer iterations: only names in plans change."""
        found = list(vector)
        for own in self.alike:
            for index, count in zip(own, sorted((vector[index] for index in own), reverse=True), strict=True):
                found[index] = count
        return tuple(found)

    def vectors(self, most: int) -> Sequence[Vector] | None:
        """Return all vectors within the caps, alike ones once; None where there are more than so many."""
        if math.prod(math.comb(self.caps[own[0]] + len(own), len(own)) for own in self.alike) > most:
            return None
        choices = [combinations_with_replacement(range(self.caps[own[0]], -1, -1), len(own)) for own in self.alike]
        order = [index for own in self.alike for index in own]
        place = [order.index(index) for index in range(len(order))]
        flat = ([count for part in parts for count in part] for parts in product(*choices))
        return [tuple(counts[at] for at in place) for counts in flat]

    def least_period_us(self, vector: Vector) -> int:
        """Return the period that a plan of these iterations has, at least."""
        return max([self.least_us, *(resource.least_period_us(vector) for resource in self.resources)])

    def rate_bound(self) -> Fraction:
        """Return weighted iterations a microsecond that no plan within the allowed period beats.

        The knapsack's value is piecewise linear in the period, so over the period it is largest at an end or a corner:
        where all that a job may have just fits. Besides, iterations are whole, and no period is below that of the
        foreground alone.
        """
        rates, most = [], []
        for resource in self.resources:
            periods = self._corners(resource)
            rates.append(max(self._knapsack(resource, period) / period for period in periods))
            most.append(self._knapsack(resource, Fraction(self.allowed_us)))
        return min(*rates, Fraction(int(min(most)), self.least_us))

    def _by_density(self, resource: SharedResource) -> list[tuple[int, int, int]]:
        """Return weight, work and cap of jobs, the best weight for their work first."""
        items = [*zip(self.weights, resource.each_us, self.caps, strict=True)]
        return sorted(items, key=lambda item: (item[1] > 0, -Fraction(item[0], item[1] or 1)))

    def _corners(self, resource: SharedResource) -> list[Fraction]:
        """Return the ends of possible periods, and where a resource suffices for one job more than before."""
        work, corners = resource.taken_us, [Fraction(self.least_us), Fraction(self.allowed_us)]
        for _, each, cap in self._by_density(resource):
            work += each * cap
            if self.least_us * resource.count < work < self.allowed_us * resource.count:
                corners.append(Fraction(work, resource.count))
        return corners

    def _knapsack(self, resource: SharedResource, period: Fraction) -> Fraction:
        """Return the most weighted iterations that fit in a period, fractions of one allowed."""
        left = resource.count * period - resource.taken_us
        if left < 0:
            return Fraction(0)
        value = Fraction(0)
        for weight, each, cap in self._by_density(resource):
            count = min(Fraction(cap), left / each) if each else Fraction(cap)
            value, left = value + count * weight, left - count * each
        return value

    def _resources(self, foreground: Sequence[str]) -> tuple[SharedResource, ...]:
        """Return all GPUs first, then the GPUs of sets of servers, then links."""
        once, servers = self._once, self.instance.cluster.servers
        everywhere = frozenset(range(len(servers)))
        sets = dict.fromkeys([everywhere, *(some for some in once.servers.values() if some)])
        found = []
        for group in sets:
            work = {name: once.gpu_us[name] if own <= group else 0 for name, own in once.servers.items()}
            found.append(self._resource(sum(servers[s].gpus for s in group), work, foreground))
        if any(once.link_us.values()):
            found.append(self._resource(len(self.instance.cluster.links), once.link_us, foreground))
        return tuple(found)

    def _resource(self, count: int, work: Mapping[str, int], foreground: Sequence[str]) -> SharedResource:
        return SharedResource(
            count, sum(work[name] for name in foreground), tuple(work[name] for name in self.background)
        )

    def _classes(self) -> tuple[tuple[int, ...], ...]:
        jobs = {job.name: altered(job, name="") for job in self.instance.jobs}
        own = [(jobs[name], pace) for name, pace in zip(self.background, self.paces_us, strict=True)]
        found: dict[int, list[int]] = {}
        for index, each in enumerate(own):
            found.setdefault(own.index(each), []).append(index)
        return tuple(map(tuple, found.values()))

    def _cap(self, index: int) -> int:
        """Return the most iterations of a background job in the allowed period, were it alone beside the foreground."""
        name = self.background[index]
        if not self._once.servers[name]:
            return 0
        rooms = [
            (resource.count * self.allowed_us - resource.taken_us, resource.each_us[index])
            for resource in self.resources
        ]
        if not rooms[0][1]:
            raise UsageError(
                f"an iteration of job {name!r} takes no time of a GPU, so there may be any number of them",
                code="out-of-range",
            )
        most = min(max(0, room) // each for room, each in rooms if each)
        job = next(job for job in self.instance.jobs if job.name == name)
        if not is_monotone(job):
            return most
        low = 0
        while low < most and not self._stop():
            middle = (low + most + 1) // 2
            alone = restricted(self.instance, {name: middle})
            # Only a bound above the period proves that so many do not fit. As a plan with one iteration less is a
            # plan as well, no larger number fits then.
            if lower_bound(compile_instance(alone)).value <= self.allowed_us:
                low = middle
            else:
                most = middle - 1
        return most


def is_monotone(job: Job | TaskGraphJob) -> bool:
    """Return whether a plan of a job still is one with an iteration left out: levels depend on no other iteration's."""
    return job.depth.rule in ("full", "staircase")


def restricted(instance: Instance, iterations: Mapping[str, int]) -> Instance:
    """Return the instance with only the jobs that have iterations."""
    jobs = (altered(job, iterations=iterations[job.name]) for job in instance.jobs if iterations.get(job.name))
    return altered(instance, jobs=tuple(jobs))


class _JobLoads:
    """Loads of each job: servers that suffice for it, least GPU time, and least time of links."""

    def __init__(self, operations: Operations) -> None:
        self.servers: dict[str, frozenset[int]] = {}
        self.gpu_us: dict[str, int] = {}
        self.link_us: dict[str, int] = {}
        for job in operations.jobs:
            self._add_data_parallel(operations, job)
        for graph in operations.task_graphs:
            self._add_task_graph(operations, graph)

    def _add_data_parallel(self, operations: Operations, job: OperationGraph) -> None:
        gpus = usable_gpus(operations, job)
        servers = operations.cluster.servers
        self.servers[job.name], self.link_us[job.name] = frozenset(gpus), 0
        tables = [job.blocks[0].duration_us[kind] for kind in {servers[s].gpu_type for s in gpus}]
        # Iteration by iteration, as levels of a rule that counts over all of them are not known here.
        each = sum(min(table[level - 1] for table in tables) for level in least_levels(job)) if tables else 0
        self.gpu_us[job.name] = job.iterations * each
        ring = operations.crossing(job, gpus) if max(gpus.values(), default=0) < job.slots else None
        if ring is not None:
            switches = set(operations.cluster.switches)
            links = 2 if all(switches & set(link.ends) for link in operations.cluster.links) else 1
            self.link_us[job.name] = job.iterations * links * sum(shortest_transfers(job, ring))

    def _add_task_graph(self, operations: Operations, graph: CompiledTaskGraph) -> None:
        types = {kind for kinds in graph.gpu_types for kind in kinds}
        fit = (s for s, server in enumerate(operations.cluster.servers) if server.gpu_type in types)
        self.servers[graph.job.name], self.link_us[graph.job.name] = frozenset(fit), 0
        least = TaskGraphData(graph, operations.cluster).least_us
        each = sum(least[block] for blocks in graph.blocks_of for block in blocks)
        self.gpu_us[graph.job.name] = graph.job.iterations * each
