"""Lower bounds job by job: least work, least iteration, least time from a block to its iteration's end.

All of it holds for every placement and every choice of levels that the rules allow, so bounds,
time windows and valid inequalities may rest on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise, repeat
from math import inf
from operator import add
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import ceil_div, contributors, deepest_level, lower_hull
from jigsaw_opt.problem.power import most_watts

_SLOPE_UNIT = 2**16
"""Fractions of a microsecond are counted in parts of one over this, rounded down."""


def candidate_levels(job: OperationGraph) -> tuple[int, ...]:
    """Return the levels that a block of `job` may have, ascending."""
    return tuple(range(1, job.levels + 1)) if job.rule.multiset is None else tuple(sorted(set(job.rule.multiset)))


def usable_gpus(operations: Operations, job: OperationGraph) -> dict[int, int]:
    """Return the number of GPUs that may hold a worker of `job`, by server.

    A GPU may if its type, its memory and the power caps over it allow it and its connected part of the cluster has
    enough such GPUs for all slots.
    """
    shallowest = candidate_levels(job)[0]
    component, servers = operations.routes.under(job.route_policy).component, operations.cluster.servers
    memories, most = {server.gpu_memory for server in servers}, most_watts(operations.cluster.capacities)
    enough = {memory for memory in memories if deepest_level(job, memory) >= shallowest}
    fits = {
        s: server.gpus
        for s, server in enumerate(servers)
        if server.gpu_type in job.gpu_types
        and server.gpu_memory in enough
        and job.power_w.get(server.gpu_type, 0) <= most.get(server.name, inf)
    }
    room: Counter[int] = Counter()
    for s, gpus in fits.items():
        room[component[s]] += gpus
    return {s: gpus for s, gpus in fits.items() if room[component[s]] >= job.slots}


def fewest_contributors(job: OperationGraph, bucket: int) -> int:
    """Return the least number of slots that reach a bucket; every slot reaches the first.

    `bucket`: number of the bucket, from 1.
    """
    if job.rule.multiset is not None:
        return contributors(job.rule.multiset, bucket)
    return job.slots if bucket == 1 else job.rule.min_contributors


def shortest_transfers(job: OperationGraph, channel: Channel) -> tuple[int, ...]:
    """Return the least duration of the transfer of each bucket over a channel that is at best `channel`."""
    return tuple(job.transfer_us(p.bucket, fewest_contributors(job, p.bucket), channel) for p in job.transfers)


def tails_us(times: Sequence[int], transfers: Sequence[int]) -> list[int]:
    """Return the least time from the start of a block to the end of its iteration, by level of the block.

    In microseconds; level ``d`` has entry ``d - 1``.
    """
    rest = list(accumulate(reversed(transfers)))[::-1]
    ready = chain(map(add, times, rest), repeat(0))
    return [max(time, latest) for time, latest in zip(times, accumulate(ready, max))]


class Exchange(NamedTuple):
    """Transfers of an iteration over a channel that is at best the one at hand.

    `shortest`: least duration of the transfer of each bucket, in microseconds. `slopes`: under ``free``, what one more
    contributor adds to it at least on average, in parts of a microsecond.
    """

    shortest: tuple[int, ...]
    slopes: tuple[int, ...]


class Site(NamedTuple):
    """Servers among which a placement chooses, with what none of its choices beats.

    `ready`: least time from the start of an iteration until all contributors have bucket 1, 2, ... ready, in
    microseconds.
    """

    ready: tuple[int, ...]
    channel: Channel
    exchange: Exchange

    @property
    def iteration_us(self) -> int:
        """Least length of an iteration, in microseconds."""
        return tails_us(self.ready, self.exchange.shortest)[-1]


def sites(operations: Operations, job: OperationGraph, gpus: dict[int, int]) -> tuple[Site, ...]:
    """Return the sites where a job may be placed; empty where it has no place even on an empty cluster.

    There is one site for each server with room for all slots (one for servers that are alike), and for each connected
    part, and in each of them for each type of GPU that may hold the slot at the last level. For each bucket it takes
    the fastest GPUs with the memory for it.

    `gpus`: number of GPUs that may hold a worker of the job, by server, as `usable_gpus` counts them.
    """
    found: dict[Site, None] = {}
    for servers, channel in _areas(operations, job, gpus):
        room: Counter[tuple[str, int]] = Counter()
        for s in servers:
            server = operations.cluster.servers[s]
            room[server.gpu_type, deepest_level(job, server.gpu_memory)] += gpus[s]
        found.update(dict.fromkeys(sites_over(job, room, channel)))
    return tuple(found)


def sites_over(job: OperationGraph, room: Counter[tuple[str, int]], channel: Channel) -> tuple[Site, ...]:
    """Return the sites of a job on some GPUs, one for each type of GPU that may hold the slot at the last level.

    `room`: number of these GPUs by type and deepest level that they have the memory for.
    """
    return tuple(Site(ready, channel, exchange_over(job, channel)) for ready in _ready_us(job, room))


def _areas(operations: Operations, job: OperationGraph, gpus: dict[int, int]) -> Iterator[tuple[list[int], Channel]]:
    seen: set[tuple[int | str, ...]] = set()
    for s, count in gpus.items():
        server = operations.cluster.servers[s]
        key = (server.gpu_type, server.gpu_memory, server.fabric_bandwidth, server.fabric_latency_us)
        # Servers that are alike give the same site.
        if count >= job.slots and key not in seen:
            seen.add(key)
            yield [s], Channel((), server.fabric_bandwidth, server.fabric_latency_us)
    ring, component = operations.crossing(job, gpus), operations.routes.under(job.route_policy).component
    parts: dict[int, list[int]] = {}
    for s in gpus:
        parts.setdefault(component[s], []).append(s)
    for part in parts.values():
        if ring is not None and len(part) > 1:
            yield part, ring


def _ready_us(job: OperationGraph, room: Counter[tuple[str, int]]) -> Iterator[tuple[int, ...]]:
    """Yield the least readiness of each bucket, for each type that may hold the slot at the last level."""
    others = [_bucket_ready_us(job, room, bucket) for bucket in range(1, job.levels + 1)]
    for gpu_type in dict.fromkeys(t for t, deepest in room if deepest == job.levels):
        own = job.blocks[0].duration_us[gpu_type]
        ready = tuple(max(mine, other) for mine, other in zip(own, others, strict=True) if other is not None)
        if len(ready) == job.levels:
            yield ready


def _bucket_ready_us(job: OperationGraph, room: Counter[tuple[str, int]], bucket: int) -> int | None:
    """Return the least time until the contributors of a bucket have it ready; None where they have no room."""
    times = job.blocks[0].duration_us
    missing = fewest_contributors(job, bucket)
    for ready, count in sorted(
        (times[t][bucket - 1], count) for (t, deepest), count in room.items() if deepest >= bucket
    ):
        missing -= count
        if missing <= 0:
            return ready
    return None


def least_iteration_us(operations: Operations, job: OperationGraph, gpus: dict[int, int]) -> int:
    """Return the least length of an iteration, from its first block's start to its barrier, in microseconds.

    Some slot is at the last level, and when a bucket is ready its transfer and those after it follow in turn.
    """
    return min((site.iteration_us for site in sites(operations, job, gpus)), default=0)


def least_span_us(job: OperationGraph, places: Sequence[Site]) -> int:
    """Return the least time from the first block's start to the end of a job, in microseconds.

    Its iterations run one after the other; under ``free`` also with the transfers that the least total of levels
    makes longer. The time is 0 where the job has no place. All numbers are the least of all sites, each by itself: the
    worker at the last level may be on a GPU of another type in each iteration, and a job that moves has several sites.
    """
    if not places:
        return 0
    n = job.iterations
    span = n * min(site.iteration_us for site in places)
    if not all(site.exchange.slopes for site in places):
        return span
    flattest = Exchange((), tuple(map(min, zip(*(site.exchange.slopes for site in places), strict=True))))
    rests = [(site.ready, list(accumulate(reversed(site.exchange.shortest)))[::-1]) for site in places]
    least = [n * min(ready[b] + rest[b] for ready, rest in rests) for b in range(job.levels)]
    # Later buckets gain no more than all of them do, and most of them are out of reach with that.
    most = _longer_us(job, flattest, 0)
    for start, minus_b in checking_deadline(sorted(((each, -b) for b, each in enumerate(least)), reverse=True)):
        if start + most <= span:
            break
        span = max(span, start + _longer_us(job, flattest, -minus_b))
    return span


def crossing_span_us(operations: Operations, job: OperationGraph, gpus: dict[int, int]) -> int | None:
    """Return `least_span_us` where the workers sit on several servers; None where they cannot."""
    ring = operations.crossing(job, gpus)
    if ring is None:
        return None
    return least_span_us(job, [site for site in sites(operations, job, gpus) if site.channel == ring])


def least_transfer_us(job: OperationGraph, exchange: Exchange) -> int:
    """Return the least sum of the durations of all transfers of a job, in microseconds."""
    longer = _longer_us(job, exchange, 0) if exchange.slopes else 0
    return job.iterations * sum(exchange.shortest) + longer


def _longer_us(job: OperationGraph, exchange: Exchange, first: int) -> int:
    """Return what the least total of levels adds to all transfers of the buckets from index `first` on.

    A slot at level ``d`` contributes to ``d`` buckets, and each contributor makes a transfer longer by its slope.
    """
    cost = list(accumulate(slope if b >= first else 0 for b, slope in enumerate(exchange.slopes)))
    fixed = job.iterations * job.rule.min_contributors
    return ceil_div(least_work_us(job, cost) - fixed * cost[-1], _SLOPE_UNIT)


def exchange_over(job: OperationGraph, channel: Channel) -> Exchange:
    """Return what the transfers of an iteration take at least over a channel that is at best `channel`.

    This is their least durations, and what one more contributor adds to each unless the depth rule fixes their number.
    """
    fixed = job.rule.multiset is not None
    slopes = () if fixed else tuple(_slope(job, operation.bucket, channel) for operation in job.transfers)
    return Exchange(shortest_transfers(job, channel), slopes)


def _slope(job: OperationGraph, bucket: int, channel: Channel) -> int:
    """Return the least duration that one more contributor adds to a transfer, on average, in parts of a microsecond."""
    fewest = fewest_contributors(job, bucket)
    least = job.transfer_us(bucket, fewest, channel)
    more = range(fewest + 1, job.slots + 1)
    rises = ((job.transfer_us(bucket, c, channel) - least) * _SLOPE_UNIT // (c - fewest) for c in more)
    return min(rises, default=0)


def least_levels(job: OperationGraph) -> tuple[int, ...]:
    """Return levels of the slots in an iteration that no allowed choice goes below, both sorted."""
    if job.rule.multiset is not None:
        return job.rule.multiset
    return (1,) * (job.slots - job.rule.min_contributors) + (job.levels,) * job.rule.min_contributors


def least_work_us(job: OperationGraph, cost: Sequence[int]) -> int:
    """Return the least sum over all blocks and iterations of a cost by level (index ``level - 1``) that never falls.

    Under ``free`` the coverage takes some slots at the last level; the others' levels must add up to the rest of the
    least total, which costs at least the lower convex envelope of `cost` at their mean.

    `cost`: cost of a block by level, ``cost[level - 1]``, in microseconds or any other integer unit.
    """
    fixed = job.iterations * sum(cost[level - 1] for level in least_levels(job))
    rule = job.rule
    if rule.multiset is not None:
        return fixed
    count = job.iterations * (job.slots - rule.min_contributors)
    missing = rule.min_total - job.iterations * rule.min_contributors * job.levels
    if count == 0 or missing <= count or job.levels == 1:
        return fixed
    # `fixed` has the other slots at level 1; the cheapest mixture that reaches the total takes their place.
    return fixed - count * cost[0] + _envelope(cost, count, min(missing, count * job.levels))


def _envelope(cost: Sequence[int], count: int, total: int) -> int:
    """Return the least cost, rounded up, of `count` fractional levels that add up to `total`."""
    # On the convex hull, the best mixture of levels lies between two neighbouring corners.
    sides = pairwise(lower_hull(enumerate(cost, 1)))
    (low, cheap), (high, dear) = next(side for side in sides if total <= count * side[1][0])
    return count * cheap + ceil_div((dear - cheap) * (total - count * low), high - low)
