"""What no plan can beat, job by job: least work, least iteration, least time from a block to its iteration's end.

All of it holds for every placement and every choice of levels that the rules allow, so bounds,
time windows and cuts may rest on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.costs import ceil_div, contributors
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = [
    "best_channel",
    "candidate_levels",
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
    """Rate and latency that no placement on `gpus` beats: a fabric with room for all slots, or else any link."""
    servers, links = pieces.cluster.servers, pieces.cluster.links
    inside = [(servers[s].fabric_bandwidth, servers[s].fabric_latency_us) for s, n in gpus.items() if n >= job.slots]
    across = [(link.bandwidth, link.latency_us) for link in links]
    rates, latencies = zip(*(inside + across or [(1, 0)]), strict=True)
    return Channel((), max(rates), min(latencies))


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
    """Least length of an iteration: one slot is at the last level, and its buckets are exchanged at the best pace."""
    transfers = shortest_transfers(job, best_channel(pieces, job, gpus))
    types = {pieces.cluster.servers[s].gpu_type for s in gpus}
    return min((tail_us(job.blocks[0].duration_us[t], transfers, job.levels) for t in types), default=0)


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
    mean = min(Fraction(missing, count), Fraction(job.levels))
    share = count * (_envelope(cost, mean) - cost[0])
    return fixed + ceil_div(share.numerator, share.denominator)


def _envelope(cost: Sequence[int], level: Fraction) -> Fraction:
    """Lower convex envelope of a cost by level, at a fractional level between 1 and D."""
    points = range(1, len(cost) + 1)
    chords = [
        cost[low - 1] + (level - low) * Fraction(cost[high - 1] - cost[low - 1], high - low)
        for low in points
        for high in points
        if low <= level <= high and low < high
    ]
    exact = [Fraction(cost[int(level) - 1])] if level.denominator == 1 else []
    return min(chords + exact)
