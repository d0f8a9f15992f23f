"""How large the exact model of an instance is."""

from __future__ import annotations

from math import prod

from jigsaw_opt.problem.compiled.critical import candidate_levels, usable_gpus
from jigsaw_opt.problem.compiled.operations import Operations


def interval_count(operations: Operations) -> int:
    """Count the optional intervals of the model: some fewer where links are alike, or no memory can be exceeded."""
    types = [server.gpu_type for server in operations.cluster.servers for _ in range(server.gpus)]
    links = len(operations.cluster.links)
    count = sum(
        job.iterations * (sum(usable_gpus(operations, job).values()) + len(job.transfers) * links)
        for job in operations.jobs
    )
    for graph in operations.task_graphs:
        places = [sum(gpu_type in own for gpu_type in types) for own in graph.gpu_types]
        uses = sum(places[slot] for block in range(graph.blocks) for slot in graph.takes_part[block])
        holds = sum(places[hold.slot] for hold in graph.holds)
        count += graph.job.iterations * (uses + holds + links * len(graph.shape.transfers))
    # Modulo a period, each use has a second interval one period later.
    return count * (2 if operations.horizon == "cyclic" else 1)


def readiness_count(operations: Operations) -> int:
    """Count the conditions that a bucket is ready at a worker of some level on some GPU."""
    return sum(
        job.iterations * sum(usable_gpus(operations, job).values()) * job.levels * len(candidate_levels(job))
        for job in operations.jobs
        if job.transfers
    )


def channel_count(operations: Operations) -> int:
    """Return how many combinations of servers the model goes through for one transfer of a task graph at most."""
    servers, most = [server.gpu_type for server in operations.cluster.servers], 0
    for graph in operations.task_graphs:
        places = [sum(gpu_type in own for gpu_type in servers) for own in graph.gpu_types]
        most = max([most, *(prod(places[slot] for slot in own) for own in graph.takes_part[graph.blocks :])])
    return most
