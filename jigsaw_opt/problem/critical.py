"""What no plan can beat, job by job: least work, least iteration, least time from a block to its iteration's end.

All of it holds for every placement and every choice of levels that the rules allow, so bounds,
time windows and cuts may rest on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.costs import ceil_div, contributors
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = [
    "best_channel",
    "candidate_levels",
    "deepest_level",
    "fewest_contributors",
    "least_iteration_us",
    "least_levels",
    "least_work_us",
    "shortest_transfers",
    "tail_us",
    "usable_gpus",
]


def candidate_levels(job: PieceGraph) -> tuple[int, ...]:
    """Levels that a block of `job` may have, ascending."""
    return tuple(range(1, job.levels + 1)) if job.rule.multiset is None else tuple(sorted(set(job.rule.multiset)))


def usable_gpus(pieces: Pieces, job: PieceGraph) -> dict[int, int]:
    """Number of GPUs that may hold a worker of `job`, by server.

    A GPU may if its type and its memory allow it and its connected part of the cluster has
    enough such GPUs for all slots.
    """
    least = job.state_bytes + job.activation_bytes[candidate_levels(job)[0] - 1]
    component = pieces.routes.component
    fits = {
        s: server.gpus
        for s, server in enumerate(pieces.cluster.servers)
        if server.gpu_type in job.gpu_types and least <= server.gpu_memory
    }
    room: Counter[int] = Counter()
    for s, gpus in fits.items():
        room[component[s]] += gpus
    return {s: gpus for s, gpus in fits.items() if room[component[s]] >= job.slots}


def fewest_contributors(job: PieceGraph, bucket: int) -> int:
    """Least number of slots that reach a bucket; every slot reaches the first."""
    if job.rule.multiset is not None:
        return contributors(job.rule.multiset, bucket)
    return job.slots if bucket == 1 else job.rule.min_contributors


def best_channel(pieces: Pieces, job: PieceGraph, gpus: dict[int, int]) -> Channel:
    """Rate and latency that no placement on `gpus` beats: a fabric with room for all slots, or the best of rings."""
    channels = [channel for _, channel in _sites(pieces, job, gpus)] or [Channel((), 1, 0)]
    return Channel((), max(c.rate for c in channels), min(c.latency_us for c in channels))


def _sites(pieces: Pieces, job: PieceGraph, gpus: dict[int, int]) -> list[tuple[tuple[int, ...], Channel]]:
    """Servers among which a placement chooses, with the channel that none of its choices beats.

    Each server with room for all slots (of those that are alike, one), and each connected part.
    """
    alike: dict[tuple[int | str, ...], tuple[tuple[int, ...], Channel]] = {}
    for s, count in gpus.items():
        server = pieces.cluster.servers[s]
        if count >= job.slots:
            channel = Channel((), server.fabric_bandwidth, server.fabric_latency_us)
            alike[server.gpu_type, server.gpu_memory, channel.rate, channel.latency_us] = (s,), channel
    crossing = pieces.pace.crossing(gpus, job.slots) if job.slots > 1 else None
    if crossing is None:
        return list(alike.values())
    parts: dict[int, list[int]] = {}
    for s in gpus:
        parts.setdefault(pieces.routes.component[s], []).append(s)
    across = [(tuple(part), crossing) for part in parts.values() if len(part) > 1]
    return [*alike.values(), *across]


def shortest_transfers(job: PieceGraph, channel: Channel) -> tuple[int, ...]:
    """Least duration of the transfer of each bucket over a channel that is at best `channel`, in microseconds."""
    return tuple(job.transfer_us(p.bucket, fewest_contributors(job, p.bucket), channel) for p in job.transfers)


def tail_us(times: Sequence[int], transfers: Sequence[int], level: int) -> int:
    """Least time from the start of a block to the end of its iteration.

    Parameters
    ----------
    times
        Duration of the block by level.
    transfers
        Least duration of the transfers by bucket.
    level
        Level of the block.
    """
    rest = list(accumulate(reversed(transfers)))[::-1]
    return max([times[level - 1], *(ready + after for ready, after in zip(times[:level], rest, strict=False))])


def least_iteration_us(pieces: Pieces, job: PieceGraph, gpus: dict[int, int]) -> int:
    """Least length of an iteration, from its first block's start to its barrier, in microseconds.

    Some slot is at the last level. A bucket is ready when the slowest of its contributors has it ready; for
    each bucket the fastest GPUs with the memory for it are taken. Then its transfers follow in turn.

    Parameters
    ----------
    pieces, job
        The instance, cut, and one of its jobs.
    gpus
        Number of GPUs that may hold a worker of the job, by server, as `usable_gpus` counts them.
    """
    lengths = (_site_iteration_us(pieces, job, {s: gpus[s] for s in site}, c) for site, c in _sites(pieces, job, gpus))
    return min((length for length in lengths if length is not None), default=0)


def _site_iteration_us(pieces: Pieces, job: PieceGraph, gpus: dict[int, int], channel: Channel) -> int | None:
    """Least length of an iteration on some servers, None where they have no place for the job."""
    room: Counter[tuple[str, int]] = Counter()
    for s, count in gpus.items():
        server = pieces.cluster.servers[s]
        room[server.gpu_type, deepest_level(job, server.gpu_memory)] += count
    ready = [_ready_us(job, room, bucket) for bucket in range(1, job.levels + 1)]
    if None in ready:
        return None
    transfers = shortest_transfers(job, channel)
    deep = {gpu_type for gpu_type, deepest in room if deepest == job.levels}
    tables = [
        [max(own, others or 0) for own, others in zip(job.blocks[0].duration_us[t], ready, strict=True)] for t in deep
    ]
    return min(tail_us(table, transfers, job.levels) for table in tables)


def deepest_level(job: PieceGraph, memory: int) -> int:
    """Largest level whose memory a GPU has, 0 for none."""
    return sum(job.state_bytes + size <= memory for size in job.activation_bytes)


def _ready_us(job: PieceGraph, room: Counter[tuple[str, int]], bucket: int) -> int | None:
    """Least time from the start of the blocks until all contributors of a bucket have it ready; None without room."""
    missing = fewest_contributors(job, bucket)
    fits = [
        (job.blocks[0].duration_us[t][bucket - 1], count) for (t, deepest), count in room.items() if deepest >= bucket
    ]
    for ready, count in sorted(fits):
        missing -= count
        if missing <= 0:
            return ready
    return None


def least_levels(job: PieceGraph) -> tuple[int, ...]:
    """Levels of the slots in an iteration that no allowed choice goes below, slot by slot when both are sorted."""
    if job.rule.multiset is not None:
        return job.rule.multiset
    return (1,) * (job.slots - job.rule.min_contributors) + (job.levels,) * job.rule.min_contributors


def least_work_us(job: PieceGraph, cost: Sequence[int]) -> int:
    """Least sum over all blocks and iterations of a cost by level (index ``level - 1``) that never falls.

    Under ``free`` the coverage takes some slots at the last level; the others' levels must add up to the rest
    of the least total, which costs at least the lower convex envelope of `cost` at their mean.
    """
    fixed = job.iterations * sum(cost[level - 1] for level in least_levels(job))
    rule = job.rule
    if rule.multiset is not None:
        return fixed
    count = job.iterations * (job.slots - rule.min_contributors)
    missing = rule.min_total - job.iterations * rule.min_contributors * job.levels
    if count == 0 or missing <= count:
        return fixed
    return fixed - count * cost[0] + _envelope(cost, count, min(missing, count * job.levels))


def _envelope(cost: Sequence[int], count: int, total: int) -> int:
    """Least cost, rounded up, of `count` levels that add up to `total` if levels and numbers may be fractions."""
    corners: list[tuple[int, int]] = []
    for x, y in enumerate(cost, 1):
        while len(corners) > 1 and _is_above(corners[-2], corners[-1], (x, y)):
            corners.pop()
        corners.append((x, y))
    for (low, cheap), (high, dear) in pairwise(corners):
        if total <= count * high:
            return count * cheap + ceil_div((dear - cheap) * (total - count * low), high - low)
    return count * cost[-1]


def _is_above(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Whether the middle point lies on or above the line through the others."""
    (a, f), (b, g), (c, h) = first, middle, last
    return (g - f) * (c - a) >= (h - f) * (b - a)
