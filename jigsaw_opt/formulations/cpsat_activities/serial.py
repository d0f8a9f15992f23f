"""Upper bounds for instances with task-graph jobs: all operations run one after the other."""

from __future__ import annotations

from jigsaw_opt.formulations.timetable import windows
from jigsaw_opt.problem.cluster import Channel, Cluster
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph


def serial_limit(operations: Operations) -> int:
    """Return an objective that some plan reaches if there is any: operations one after the other.

    What holds memory at a moment of a plan holds it as well where operations follow one another in the order of their
    starts there, so that order is feasible too; on the cyclic horizon the specification says so (cyclic-horizon).
    """
    end = serial_end(operations)
    return end * sum(operations.weights) if operations.objective == "weighted_completion" else max(1, end)


def serial_end(operations: Operations) -> int:
    """Return a moment by which such a plan has ended, in microseconds."""
    # One job after another, none before the last release.
    lengths = [graph.job.iterations * serial_us(operations.cluster, graph) for graph in operations.task_graphs]
    released = max((graph.job.release_us for graph in operations.task_graphs), default=0)
    others = windows.serial_end(operations) if operations.jobs else 0
    return sum(lengths) + released + others


def serial_us(cluster: Cluster, graph: CompiledTaskGraph) -> int:
    """Return the longest time of all operations of one iteration, one after the other, on any GPUs."""
    rates = [*(link.bandwidth for link in cluster.links), *(server.fabric_bandwidth for server in cluster.servers)]
    latencies = [
        *(link.latency_us for link in cluster.links),
        *(server.fabric_latency_us for server in cluster.servers),
    ]
    # No route is slower than the smallest rate together with the largest latency.
    worst = Channel((), min(rates), max(latencies))
    blocks = sum(max(block.duration_us.values()) for block in graph.shape.blocks)
    return blocks + sum(graph.transfer_us(operation, worst) for operation in range(graph.blocks, graph.size))
