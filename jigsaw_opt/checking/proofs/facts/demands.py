"""Work that jobs ask of GPUs and links, iteration by iteration (docs/proofs.md: demands)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.cluster_facts import GpuKind
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.job_facts import JobFacts
from jigsaw_opt.checking.proofs.facts.resource_facts import ResourceFacts, resource_facts
from jigsaw_opt.checking.proofs.step import ProofStep


class WorkSpan(NamedTuple):
    """Work of an iteration in one go: `rate` in each of `length` microseconds.

    `before, after`: least time from the start of the iteration, and to its end.
    """

    rate: int
    length: int
    before: int
    after: int

    @property
    def work(self) -> int:
        """Amount of work."""
        return self.rate * self.length


class SpanDemand(NamedTuple):
    """Demand of a job: least work of all iterations, that of each iteration, and room for free work in each."""

    work: int
    spans: tuple[WorkSpan, ...]
    room: WorkSpan

    def free(self, iterations: int) -> int:
        """Return the work beyond that of all spans."""
        return self.work - iterations * sum(span.work for span in self.spans)


def spanned_resource(step: ProofStep, facts: Facts) -> ResourceFacts:
    """Return the GPUs or links that a step names."""
    found = resource_facts(step, facts)
    step.require(bool(found.prices or found.links), "has no spans", "kind")
    return found


def whole_demand(job: JobFacts, resource: ResourceFacts) -> SpanDemand | None:
    """Return what a job asks of GPUs or links, wherever its workers are."""
    if resource.prices:
        return whole_gpu_demand(job, resource.prices)
    return link_demand(job, job.shared.links_needed(resource.links), resource.links)


def whole_gpu_demand(job: JobFacts, prices: Mapping[GpuKind, int]) -> SpanDemand | None:
    """Return the priced work of a job on GPUs, wherever its workers are; None where there is none."""
    shared = job.shared
    cost, overflow, top = shared.cheapest(prices), shared.overflow(prices), max(prices.values())
    if not cost:
        return None
    spans = tuple(
        WorkSpan(workers * top, cost[level - 1] // top, 0, shared.tails[level - 1])
        for level, workers in Counter(shared.least_levels).items()
    )
    fixed = job.limits.fixed is not None
    most = (sum(cost[level - 1] for level in shared.least_levels) if fixed else shared.workers * cost[-1]) + overflow
    rate = shared.workers * top
    room = WorkSpan(rate, -((sum(span.work for span in spans) - most) // rate), 0, shared.tail)
    return SpanDemand(job.least_work(cost) + job.iterations * overflow, spans, room)


def link_demand(job: JobFacts, needed: int, links: Collection[int]) -> SpanDemand | None:
    """Return the transfers of a job that needs some number of links."""
    shared, channel = job.shared, job.shared.channel_over(links)
    if needed < 1 or channel is None or not shared.blocks:
        return None
    transfers, first = shared.transfers_over(channel), shared.shortest_blocks[0]
    buckets = range(1, len(transfers.shortest) + 1)
    longest = sum(shared.transfer(b, shared.workers, channel) for b in buckets)
    room = WorkSpan(needed, max(0, longest - sum(transfers.shortest)), first, 0)
    spans = _transfers(transfers.shortest, shared.shortest_blocks, needed)
    return SpanDemand(needed * job.least_transfers(transfers), tuple(spans), room)


def _transfers(transfers: Sequence[int], blocks: Sequence[int], needed: int) -> Iterator[WorkSpan]:
    """Yield the transfers of an iteration one after the other, each once its bucket can be ready."""
    before, after = 0, sum(transfers)
    for length, ready in zip(transfers, blocks):
        before, after = max(before, ready), after - length
        yield WorkSpan(needed, length, before, after)
        before += length


class WorkCurve:
    """Most work in a stretch of time from one end of a job on: its value at integers, and where it bends."""

    def __init__(self, job: JobFacts, demand: SpanDemand, from_release: bool) -> None:
        n, length = job.iterations, job.shared.iteration
        self._base = _Rising(demand.spans, n, length, from_release)
        self._room = _Rising([demand.room], n, length, from_release)
        self._free = demand.free(n)

    def at(self, time: int) -> int:
        """Return the most work in so many microseconds."""
        return self._base.at(time) + min(self._free, self._room.at(time))

    def bends(self, most: int) -> list[int]:
        """Return integers, ascending from 0, between which ``max(0, most - self.at(time))`` is linear on integers."""
        corners = {*self._base.times, *self._room.times}
        for reached in (_first(self._room, self._free), _first(self, most)):
            corners |= {reached, reached - 1} if reached else {0}
        return sorted(corners)

    @property
    def longest(self) -> int:
        """Length from which on nothing more fits."""
        return max(self._base.longest, self._room.longest)


class _Rising:
    """A piecewise linear function by its corners."""

    def __init__(self, spans: Iterable[WorkSpan], iterations: int, length: int, from_release: bool) -> None:
        changes = {0: 0}
        for span in spans:
            for i in range(iterations):
                start = i * length + (span.before if from_release else span.after)
                changes[start] = changes.get(start, 0) + span.rate
                changes[start + span.length] = changes.get(start + span.length, 0) - span.rate
        self.times = sorted(changes)
        self._slopes = list(accumulate(changes[time] for time in self.times))
        gains = (slope * (end - start) for slope, start, end in zip(self._slopes, self.times, self.times[1:]))
        self._values = list(accumulate(gains, initial=0))

    def at(self, time: int) -> int:
        k = bisect_right(self.times, time) - 1
        return self._values[k] + self._slopes[k] * (time - self.times[k]) if k >= 0 else 0

    @property
    def longest(self) -> int:
        return self.times[-1]


def _first(function: _Rising | WorkCurve, work: int) -> int:
    """Return the least length that holds so much work, or one behind the last corner."""
    low, high = 0, function.longest + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if function.at(middle) >= work else (middle + 1, high)
    return low
