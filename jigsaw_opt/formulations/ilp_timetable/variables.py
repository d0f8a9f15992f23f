"""The variables of the mixed-integer model of the finite horizon, and the grid that times and objectives lie on."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.timetable import variables
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations

if TYPE_CHECKING:
    import pulp

JobVariables = variables.JobVariables["pulp.LpVariable", Expression]


def add_both(model: AlgebraicModel, name: str, literals: Sequence[pulp.LpVariable]) -> pulp.LpVariable:
    """Add a 0-1 variable that is 1 exactly where all the others are, and return it.

    `model`: the program, which receives columns and rows.
    """
    literal = model.binary(name)
    model.add(literal >= model.total(literals) - (len(literals) - 1), f"all_{name}")
    for k, one in enumerate(literals):
        model.add(literal <= one, f"all_{name}_{k}")
    return literal


def objective_step(operations: Operations) -> int:
    """Return a number of which the objective of every plan without needless waiting is a multiple, in microseconds.

    That is the step of all times; for a weighted sum, it is multiplied by the greatest common divisor of the weights.
    """
    step = time_step(operations)
    return step if operations.objective == "makespan" else step * gcd(*(job.weight for job in operations.jobs))


def time_step(operations: Operations) -> int:
    """Return a number of which every time of a plan without needless waiting is a multiple, in microseconds.

    All starts of such a plan are sums of releases and durations, so their greatest common divisor divides them.
    """
    channels = _channels(operations)
    return gcd(*(_job_step(job, channels) for job in operations.jobs))


def _channels(operations: Operations) -> list[Channel]:
    """Return every rate with every latency that a channel may have."""
    servers, links = operations.cluster.servers, operations.cluster.links
    rates = {server.fabric_bandwidth for server in servers} | {link.bandwidth for link in links}
    latencies = {server.fabric_latency_us for server in servers} | {link.latency_us for link in links}
    return [Channel((), rate, latency) for rate in sorted(rates) for latency in sorted(latencies)]


def _job_step(job: OperationGraph, channels: list[Channel]) -> int:
    blocks = (time for block in job.blocks for times in block.duration_us.values() for time in times)
    transfers = (
        job.transfer_us(operation.bucket, count, channel)
        for operation in job.transfers
        for count in range(1, job.slots + 1)
        for channel in channels
    )
    return gcd(job.release_us, *blocks, *transfers)
