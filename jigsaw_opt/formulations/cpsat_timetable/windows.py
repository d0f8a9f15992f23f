"""What is known before any search: size of the model, latest end, and the times of each job."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.formulations.cpsat_timetable.variables import Ground, Window, candidate_levels
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = ["interval_count", "serial_limit", "windows"]


def interval_count(pieces: Pieces) -> int:
    """Number of optional intervals of the model, a measure of its size."""
    ground = Ground(pieces)
    links = len(pieces.cluster.links)
    return sum(
        job.iterations * (len(ground.allowed(job)) * len(candidate_levels(job)) + len(job.transfers) * links)
        for job in pieces.jobs
    )


def serial_limit(pieces: Pieces) -> int:
    """An objective that some plan reaches, if there is any plan: all pieces one after the other, as slowly as can be."""
    end = _serial_end(pieces)
    return end if pieces.objective == "makespan" else end * sum(job.weight for job in pieces.jobs)


def _serial_end(pieces: Pieces) -> int:
    servers, links = pieces.cluster.servers, pieces.cluster.links
    rate = min([server.fabric_bandwidth for server in servers] + [link.bandwidth for link in links])
    latency = max([server.fabric_latency_us for server in servers] + [link.latency_us for link in links])
    slowest = Channel((), rate, latency)
    lengths = (job.iterations * _serial_iteration(job, slowest) for job in pieces.jobs)
    return max(job.release_us for job in pieces.jobs) + sum(lengths)


def _serial_iteration(job: PieceGraph, slowest: Channel) -> int:
    blocks = max((times[-1] for times in job.blocks[0].duration_us.values()), default=0)
    return blocks + sum(job.transfer_us(piece.bucket, job.slots, slowest) for piece in job.transfers)


def windows(pieces: Pieces, iteration_us: Sequence[int], limit: int) -> tuple[Window, ...]:
    """Window of each job in plans whose objective is at most `limit`.

    Parameters
    ----------
    pieces
        The instance, cut.
    iteration_us
        A lower bound on the length of an iteration, by job.
    limit
        Largest objective of interest; from it and the earliest ends of the other jobs follows a job's deadline.
    """
    ends = [job.release_us + job.iterations * least for job, least in zip(pieces.jobs, iteration_us, strict=True)]
    if pieces.objective == "makespan":
        deadlines = [limit] * len(ends)
    else:
        slack = limit - sum(job.weight * end for job, end in zip(pieces.jobs, ends, strict=True))
        # Left-shifting a plan never hurts, and leaves no moment without a piece after the last release.
        latest = _serial_end(pieces)
        deadlines = [min(latest, end + slack // job.weight) for job, end in zip(pieces.jobs, ends, strict=True)]
    return tuple(
        Window(job.release_us, least, deadline)
        for job, least, deadline in zip(pieces.jobs, iteration_us, deadlines, strict=True)
    )
