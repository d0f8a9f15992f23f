"""Data that is known before any search: the latest end, and the times of each data-parallel job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import least_iteration_us, usable_gpus
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations


@dataclass(frozen=True, slots=True)
class Window:
    """Bounds on a job's times that hold before any search, in microseconds.

    `deadline`: no plan worth finding ends the job later.
    """

    release: int
    iteration: int
    deadline: int


def serial_limit(operations: Operations) -> int:
    """Return an objective that some plan reaches if there is any: all operations in turn, as slowly as can be.

    What task-graph jobs hold of memory at a moment of a plan they hold as well where operations follow one another in
    the order of their starts there, so that order is feasible too; on the cyclic horizon the specification says so
    (cyclic-horizon).
    """
    end = serial_end(operations)
    return end * sum(operations.weights) if operations.objective == "weighted_completion" else max(1, end)


def serial_end(operations: Operations) -> int:
    """Return an upper bound on the end of a plan without needless waiting, in microseconds: operations in turn."""
    servers, links = operations.cluster.servers, operations.cluster.links
    # No route is slower than the smallest rate together with the largest latency.
    rate = min([server.fabric_bandwidth for server in servers] + [link.bandwidth for link in links])
    latency = max([server.fabric_latency_us for server in servers] + [link.latency_us for link in links])
    slowest = Channel((), rate, latency)
    capped = bool(operations.cluster.capacities)  # Then even the blocks of one job may have to take turns.
    lengths = [job.iterations * _serial_iteration(job, slowest, job.slots if capped else 1) for job in operations.jobs]
    for graph in operations.task_graphs:
        blocks = sum(max(block.duration_us.values()) for block in graph.shape.blocks)
        transfers = sum(graph.transfer_us(operation, slowest) for operation in range(graph.blocks, graph.size))
        lengths.append(graph.job.iterations * (blocks + transfers))
    releases = [job.release_us for job in operations.jobs] + [graph.job.release_us for graph in operations.task_graphs]
    return max(releases) + sum(lengths)


def _serial_iteration(job: OperationGraph, slowest: Channel, turns: int) -> int:
    block = max((times[-1] for times in job.blocks[0].duration_us.values()), default=0)
    return turns * block + sum(job.transfer_us(operation.bucket, job.slots, slowest) for operation in job.transfers)


def windows(
    operations: Operations, limit: int, latest_ends: Mapping[int, int] = MappingProxyType({})
) -> tuple[Window, ...]:
    """Return the window of each data-parallel job in plans whose objective is at most `limit`.

    From the limit and the earliest ends of the other jobs follows a job's deadline, unless it guarantees an earlier
    one.

    `limit`: largest objective of interest. `latest_ends`: earlier deadlines by number of the job, where something else
    has proven them.
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
