"""Kinds of placement of a job, each with facts of its own (docs/proofs.md: kinds of placement)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from fractions import Fraction
from itertools import islice, pairwise
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.cluster_facts import GpuKind, RateAndLatency, numbers_of_workers
from jigsaw_opt.checking.proofs.facts.demands import SpanDemand, WorkSpan, link_demand
from jigsaw_opt.checking.proofs.facts.job_facts import IterationFacts, JobFacts
from jigsaw_opt.checking.proofs.facts.level_limits import lower_envelope
from jigsaw_opt.checking.proofs.facts.resource_facts import ResourceFacts

_MOST_NUMBERS = 10_000
"""A job with more numbers of workers by kind of GPU than this is its only kind of placement."""
_MOST_CHUNKS = 9
"""Largest number of kinds on several servers: more numbers of workers are put together, next to each other."""

Counts = Mapping[GpuKind, int]
"""Number of workers by kind of GPU."""


class PlacementFacts(NamedTuple):
    """What holds for a kind of placement: facts of the job there, and the numbers of workers it stands for.

    `crosses`: whether the workers are on several servers. `completion`: least completion time.
    """

    facts: JobFacts
    counts: tuple[Counts, ...]
    crosses: bool
    completion: int


class PlacementKinds:
    """Kinds of placement of all jobs, worked out once for jobs that share their facts."""

    def __init__(self) -> None:
        self._known: dict[int, list[tuple[IterationFacts, tuple[Counts, ...], bool]]] = {}

    def of(self, job: JobFacts) -> Iterator[PlacementFacts]:
        """Yield the kinds of placement of a job; the job as it is, with no numbers, where there is none."""
        if id(job.shared) not in self._known:
            found = [both for both in _kinds(job.shared) if both[0].sites] if job.shared.blocks else []
            self._known[id(job.shared)] = found or [(job.shared, (), False)]
        for shared, counts, crosses in self._known[id(job.shared)]:
            own = JobFacts(job.job, shared, job.limits)
            yield PlacementFacts(own, counts, crosses, max(own.completion, job.completion))


def _kinds(job: IterationFacts) -> Iterator[tuple[IterationFacts, tuple[Counts, ...], bool]]:
    servers, kinds, workers = job.cluster.cluster.servers, job.cluster.kinds, job.workers
    room, hosts = job.cluster.by_kind(job.gpus), Counter(kinds[s] for s in job.gpus)
    across = job.ring is not None
    numbers = list(islice(numbers_of_workers([*room.values()], workers), _MOST_NUMBERS + 1)) if across else []
    if len(numbers) > _MOST_NUMBERS:
        return
    for kind in room:
        alone = [s for s, gpus in job.gpus.items() if kinds[s] == kind and gpus >= workers]
        if alone:
            rate = max(servers[s].fabric_bandwidth for s in alone)
            fabric = RateAndLatency(rate, min(servers[s].fabric_latency_us for s in alone))
            yield _restricted(job, ({kind: workers},), dict.fromkeys(alone, workers), fabric, crosses=False)
    vectors = [
        counts
        for each in numbers
        for counts in ({kind: count for kind, count in zip(room, each, strict=True) if count},)
        if len(counts) > 1 or any(hosts[kind] > 1 for kind in counts)
    ]
    step = max(1, -(-len(vectors) // _MOST_CHUNKS))
    for first in range(0, len(vectors), step):
        chunk = tuple(vectors[first : first + step])
        most = _largest(chunk)
        places = {s: min(gpus, most[kinds[s]]) for s, gpus in job.gpus.items() if kinds[s] in most}
        assert job.ring is not None, "otherwise there are no vectors"
        yield _restricted(job, chunk, places, job.ring, crosses=True)


def _largest(chunk: Sequence[Counts]) -> dict[GpuKind, int]:
    kinds = dict.fromkeys(kind for counts in chunk for kind in counts)
    return {kind: max(counts.get(kind, 0) for counts in chunk) for kind in kinds}


def _restricted(
    job: IterationFacts,
    counts: tuple[Counts, ...],
    gpus: Mapping[int, int],
    channel: RateAndLatency,
    crosses: bool,
) -> tuple[IterationFacts, tuple[Counts, ...], bool]:
    """Return the facts of some numbers of workers, on some GPUs, over a channel."""
    most, own = _largest(counts), copy(job)
    for name in ("iteration", "tails", "shortest_blocks"):
        vars(own).pop(name, None)
    own.gpus, own.ring = gpus, channel if crosses else None
    own.blocks = {kind: times for kind, times in job.blocks.items() if kind in most}
    own.sites = tuple(dict.fromkeys(own.sites_among(most, channel)))
    return own, counts, crosses


def kind_demand(kind: PlacementFacts, resource: ResourceFacts) -> SpanDemand | None:
    """Return what a kind of placement asks of GPUs or links; None where that is nothing."""
    if resource.prices:
        return _gpu_demand(kind, resource.prices)
    return link_demand(kind.facts, kind.facts.shared.links_needed(resource.links, kind.crosses), resource.links)


def _gpu_demand(kind: PlacementFacts, prices: Mapping[GpuKind, int]) -> SpanDemand | None:
    """Return the priced work on GPUs of a kind of placement; None where it has none."""
    job, shared, blocks = kind.facts, kind.facts.shared, kind.facts.shared.blocks
    priced = {k: prices[k] for k in blocks if prices.get(k)}
    if not kind.counts or not priced:
        return None
    depth = range(shared.depth)
    cost = {k: [prices.get(k, 0) * times[min(d, len(times) - 1)] for d in depth] for k, times in blocks.items()}
    spans = []
    for k, price in priced.items():
        fewest = min(counts.get(k, 0) for counts in kind.counts)
        tails = shared.tails_on([k])
        for level, workers in sorted(Counter(shared.least_levels[:fewest]).items()):
            length = blocks[k][min(level, len(blocks[k])) - 1]
            spans.append(WorkSpan(workers * price, length, 0, tails[level - 1]))
    once = sum(span.work for span in spans)
    rate = max(sum(price * counts.get(k, 0) for k, price in priced.items()) for counts in kind.counts)
    most = max(_most(job, counts, cost) for counts in kind.counts)
    work = max(job.iterations * once, min(_least(job, counts, cost) for counts in kind.counts))
    return SpanDemand(work, tuple(spans), WorkSpan(rate, max(0, -((once - most) // rate)), 0, shared.tail))


def _most(job: JobFacts, counts: Counts, cost: Mapping[GpuKind, Sequence[int]]) -> int:
    """Return the most priced work of an iteration."""
    if job.limits.fixed is None:
        return sum(workers * cost[k][-1] for k, workers in counts.items() if k in cost)
    return -_assigned(job.limits.fixed, counts, {k: [-each for each in own] for k, own in cost.items()})


def _least(job: JobFacts, counts: Counts, cost: Mapping[GpuKind, Sequence[int]]) -> int:
    """Return the least priced work of all iterations."""
    n, limits, depth = job.iterations, job.limits, job.shared.depth
    if limits.fixed is not None:
        return n * _assigned(limits.fixed, counts, cost)
    own = [(cost[k], workers) for k, workers in counts.items() if k in cost]
    total, left = n * sum(each[0] * workers for each, workers in own), limits.contributors
    # Those whose rise to the last level is the cheapest reach it in every iteration.
    for rise, workers in sorted((each[-1] - each[0], workers) for each, workers in own):
        total, left = total + n * min(left, workers) * rise, left - min(left, workers)
    missing = limits.total - n * (job.shared.workers + limits.contributors * (depth - 1))
    sides = [
        (Fraction(dear - cheap, high - low), (high - low) * n * workers)
        for each, workers in own
        for (low, cheap), (high, dear) in pairwise(lower_envelope(list(enumerate(each, 1))))
    ]
    rest = Fraction(0)
    for slope, room in sorted(sides):
        taken = max(0, min(missing, room))
        rest, missing = rest + slope * taken, missing - taken
    return total - (-rest.numerator // rest.denominator)


def _assigned(levels: Sequence[int], counts: Counts, cost: Mapping[GpuKind, Sequence[int]]) -> int:
    """Return the least cost of blocks at some levels: exactly on two kinds of GPU, else each where it is cheapest."""
    used = [k for k in cost if counts.get(k)]
    if len(used) != 2:
        return sum(count * min(cost[k][level - 1] for k in used) for level, count in Counter(levels).items())
    one, other = (cost[k] for k in used)
    differences = sorted(one[level - 1] - other[level - 1] for level in levels)
    return sum(other[level - 1] for level in levels) + sum(differences[: counts[used[0]]])
