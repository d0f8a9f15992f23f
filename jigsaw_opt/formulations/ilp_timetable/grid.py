"""What is known before the program is built: its size, and the grid that objectives lie on."""

from __future__ import annotations

from itertools import combinations
from math import gcd

from jigsaw_opt.formulations.timetable.ground import Ground
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = ["objective_step", "piece_pairs"]


def piece_pairs(pieces: Pieces) -> int:
    """Number of pairs of pieces whose order the program may have to choose, a measure of its size."""
    ground = Ground(pieces)
    allowed = [set(ground.allowed(job)) for job in pieces.jobs]
    linked = bool(pieces.cluster.links)
    return sum(
        one.iterations * two.iterations * (len(here & there) + linked * len(one.transfers) * len(two.transfers))
        for (one, here), (two, there) in combinations(zip(pieces.jobs, allowed, strict=True), 2)
    )


def objective_step(pieces: Pieces) -> int:
    """Number of which the objective of every plan without needless waiting is a multiple, in microseconds.

    All starts of such a plan are sums of releases and durations, so their greatest common divisor
    divides them, and that of the weights a weighted sum once more.
    """
    channels = _channels(pieces)
    step = gcd(*(_job_step(job, channels) for job in pieces.jobs))
    return step if pieces.objective == "makespan" else step * gcd(*(job.weight for job in pieces.jobs))


def _channels(pieces: Pieces) -> list[Channel]:
    """Every rate with every latency that a channel may have."""
    servers, links = pieces.cluster.servers, pieces.cluster.links
    rates = {server.fabric_bandwidth for server in servers} | {link.bandwidth for link in links}
    latencies = {server.fabric_latency_us for server in servers} | {link.latency_us for link in links}
    return [Channel((), rate, latency) for rate in sorted(rates) for latency in sorted(latencies)]


def _job_step(job: PieceGraph, channels: list[Channel]) -> int:
    blocks = (time for block in job.blocks for times in block.duration_us.values() for time in times)
    transfers = (
        job.transfer_us(piece.bucket, count, channel)
        for piece in job.transfers
        for count in range(1, job.slots + 1)
        for channel in channels
    )
    return gcd(job.release_us, *blocks, *transfers)
