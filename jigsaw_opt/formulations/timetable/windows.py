"""Data that is known before any search: size of the model, latest end, and the times of each job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import candidate_levels, least_iteration_us, usable_gpus
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations

_INTERVALS_OF_OPERATION = {"finite": 1, "cyclic": 2}
"""Modulo a period that is a variable, every operation is laid down twice (`cpsat_cycle.resources`)."""


@dataclass(frozen=True, slots=True)
class Window:
    """Bounds on a job's times that hold before any search, in microseconds.

    `deadline`: no plan worth finding ends the job later.
    """

    release: int
    iteration: int
    deadline: int


def interval_count(operations: Operations) -> int:
    """Count the optional intervals of the CP-SAT model, a measure of its size: some fewer where links are alike."""
    links = len(operations.cluster.links)
    return _INTERVALS_OF_OPERATION[operations.horizon] * sum(
        job.iterations * (sum(usable_gpus(operations, job).values()) + len(job.transfers) * links)
        for job in operations.jobs
    )


def readiness_count(operations: Operations) -> int:
    """Count the conditions that a bucket is ready at a worker of some level on some GPU, a measure of size."""
    return sum(
        readiness_of(job, sum(usable_gpus(operations, job).values())) for job in operations.jobs if job.transfers
    )


def readiness_of(job: OperationGraph, places: int) -> int:
    """Count these conditions of one job."""
    return job.iterations * places * job.levels * len(candidate_levels(job))


def serial_limit(operations: Operations) -> int:
    """Return an objective that some plan reaches if there is any: all operations in turn, as slowly as can be."""
    end = serial_end(operations)
    return end * sum(job.weight for job in operations.jobs) if operations.objective == "weighted_completion" else end


def serial_end(operations: Operations) -> int:
    """Return an upper bound on the end of a plan without needless waiting, in microseconds: operations in turn."""
    servers, links = operations.cluster.servers, operations.cluster.links
    rate = min([server.fabric_bandwidth for server in servers] + [link.bandwidth for link in links])
    latency = max([server.fabric_latency_us for server in servers] + [link.latency_us for link in links])
    slowest = Channel((), rate, latency)
    capped = bool(operations.cluster.capacities)  # Then even the blocks of one job may have to take turns.
    lengths = (job.iterations * _serial_iteration(job, slowest, job.slots if capped else 1) for job in operations.jobs)
    return max(job.release_us for job in operations.jobs) + sum(lengths)


def _serial_iteration(job: OperationGraph, slowest: Channel, turns: int) -> int:
    block = max((times[-1] for times in job.blocks[0].duration_us.values()), default=0)
    return turns * block + sum(job.transfer_us(operation.bucket, job.slots, slowest) for operation in job.transfers)


def windows(
    operations: Operations, limit: int, latest_ends: Mapping[int, int] = MappingProxyType({})
) -> tuple[Window, ...]:
    """Return the window of each job in plans whose objective is at most `limit`.

    From the limit and the earliest ends of the other jobs follows a job's deadline, unless it guarantees an earlier
    one.

    Parameters
    ----------
    operations
        The compiled instance.
    limit
        Largest objective of interest.
    latest_ends
        Earlier deadlines by index of the job, where something else has proven them.
    """
    least = [least_iteration_us(operations, job, usable_gpus(operations, job)) for job in operations.jobs]
    ends = [job.release_us + job.iterations * length for job, length in zip(operations.jobs, least, strict=True)]
    if operations.objective != "weighted_completion":
        deadlines = [limit] * len(ends)
    else:
        # What the limit leaves once each job ends as early as it can; one job alone may use all of it.
        slack = limit - sum(job.weight * end for job, end in zip(operations.jobs, ends, strict=True))
        # Left-shifting a plan never hurts, and leaves no moment without an operation after the last release.
        latest = serial_end(operations)
        deadlines = [min(latest, end + slack // job.weight) for job, end in zip(operations.jobs, ends, strict=True)]
    guaranteed = (
        deadline if job.deadline_us is None else min(deadline, job.deadline_us)
        for job, deadline in zip(operations.jobs, deadlines, strict=True)
    )
    return tuple(
        Window(job.release_us, length, min(deadline, latest_ends.get(number, deadline)))
        for number, (job, length, deadline) in enumerate(zip(operations.jobs, least, guaranteed, strict=True))
    )
