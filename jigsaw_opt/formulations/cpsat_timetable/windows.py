"""What is known before any search: size of the model, latest end, and the times of each job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jigsaw_opt.formulations.cpsat_timetable.timing import block_us, fewest_contributors, tail_us
from jigsaw_opt.formulations.cpsat_timetable.variables import Ground, Window, candidate_levels
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = ["interval_count", "serial_end", "serial_limit", "windows"]


def interval_count(pieces: Pieces) -> int:
    """Number of optional intervals of the model, a measure of its size."""
    ground = Ground(pieces)
    links = len(pieces.cluster.links)
    return sum(
        job.iterations * (len(ground.allowed(job)) * len(candidate_levels(job)) + len(job.transfers) * links)
        for job in pieces.jobs
    )


def serial_limit(pieces: Pieces) -> int:
    """An objective that some plan reaches if there is any: all pieces in turn, as slowly as can be."""
    end = serial_end(pieces)
    return end if pieces.objective == "makespan" else end * sum(job.weight for job in pieces.jobs)


def serial_end(pieces: Pieces) -> int:
    """A moment by which a plan without needless waiting has ended: all pieces in turn, as slowly as can be."""
    servers, links = pieces.cluster.servers, pieces.cluster.links
    rate = min([server.fabric_bandwidth for server in servers] + [link.bandwidth for link in links])
    latency = max([server.fabric_latency_us for server in servers] + [link.latency_us for link in links])
    slowest = Channel((), rate, latency)
    lengths = (job.iterations * _serial_iteration(job, slowest) for job in pieces.jobs)
    return max(job.release_us for job in pieces.jobs) + sum(lengths)


def _serial_iteration(job: PieceGraph, slowest: Channel) -> int:
    blocks = max((times[-1] for times in job.blocks[0].duration_us.values()), default=0)
    return blocks + sum(job.transfer_us(piece.bucket, job.slots, slowest) for piece in job.transfers)


def windows(pieces: Pieces, limit: int) -> tuple[Window, ...]:
    """Window of each job in plans whose objective is at most `limit`.

    From the limit and the earliest ends of the other jobs follows a job's deadline.
    """
    ground = Ground(pieces)
    least = [_least_iteration(ground, job) for job in pieces.jobs]
    ends = [job.release_us + job.iterations * length for job, length in zip(pieces.jobs, least, strict=True)]
    if pieces.objective == "makespan":
        deadlines = [limit] * len(ends)
    else:
        slack = limit - sum(job.weight * end for job, end in zip(pieces.jobs, ends, strict=True))
        # Left-shifting a plan never hurts, and leaves no moment without a piece after the last release.
        latest = serial_end(pieces)
        deadlines = [min(latest, end + slack // job.weight) for job, end in zip(pieces.jobs, ends, strict=True)]
    return tuple(
        Window(job.release_us, length, deadline)
        for job, length, deadline in zip(pieces.jobs, least, deadlines, strict=True)
    )


def _least_iteration(ground: Ground, job: PieceGraph) -> int:
    """Least length of an iteration: one worker is at the last level, and its buckets are exchanged at the best pace."""
    gpus = ground.allowed(job)
    channel = _best_channel(ground, job, gpus)
    transfers = [job.transfer_us(p.bucket, fewest_contributors(job, p.bucket), channel) for p in job.transfers]
    return min((tail_us(block_us(job, ground.gpu_type(g)), transfers, job.levels) for g in gpus), default=0)


def _best_channel(ground: Ground, job: PieceGraph, gpus: Sequence[int]) -> Channel:
    """No placement has a better rate or latency: a fabric with room for all slots, or else any link."""
    room = Counter(ground.server(g) for g in gpus)
    servers, links = ground.pieces.cluster.servers, ground.pieces.cluster.links
    inside = [(servers[s].fabric_bandwidth, servers[s].fabric_latency_us) for s, n in room.items() if n >= job.slots]
    across = [(link.bandwidth, link.latency_us) for link in links]
    rates, latencies = zip(*(inside + across or [(1, 0)]), strict=True)
    return Channel((), max(rates), min(latencies))
