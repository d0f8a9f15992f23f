"""Constraints on the links of a job's transfers, and so on their durations (specification: ring, transfer)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables, add_any
from jigsaw_opt.formulations.timetable import order_encoding
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.formulations.timetable.order_encoding import OrderEncoding

if TYPE_CHECKING:
    import pulp

ChannelEncoding: TypeAlias = order_encoding.ChannelEncoding["pulp.LpVariable"]


def add_links(model: AlgebraicModel, network: RoutedNetwork, job_vars: JobVariables) -> None:
    """Let a job use the links on the routes between neighbours of its ring (specification: ring).

    `model`: the program, which receives columns and rows.
    """
    if job_vars.job.slots < 2 or not network.cluster.links:
        return
    for link, pairs in sorted(network.routes(job_vars.job, tuple(job_vars.used)).items()):
        literal = model.binary(f"link_{job_vars.number}_{link}")
        job_vars.links[link] = literal
        side = network.side(job_vars.job, link)
        if side is not None:
            _bridge(model, network, job_vars, link, side)
        else:
            _ring_neighbours(model, network, job_vars, literal, pairs)


def _bridge(
    model: AlgebraicModel, network: RoutedNetwork, job_vars: JobVariables, link: int, side: frozenset[int]
) -> None:
    """Let a closed ring cross the only way between two sides exactly where it has servers on both."""
    component = network.eligibility.routes(job_vars.job).component
    part = {component[s] for s in side}
    inside = [s for s in job_vars.used if component[s] in part]
    near, far = [s for s in inside if s in side], [s for s in inside if s not in side]
    sides = [
        _any_used(model, job_vars, f"side_{job_vars.number}_{link}_{end}", servers)
        for end, servers in enumerate((near, far))
    ]
    # Linear form of: the link is in use exactly where both sides are.
    model.add(job_vars.links[link] >= model.total(sides) - 1, f"bridge_{job_vars.number}_{link}")
    for end, literal in enumerate(sides):
        model.add(job_vars.links[link] <= literal, f"bridge_{job_vars.number}_{link}_{end}")


def _any_used(model: AlgebraicModel, job_vars: JobVariables, name: str, servers: Sequence[int]) -> pulp.LpVariable:
    """Return the literal of a worker on one of the servers."""
    if len(servers) == 1:
        return job_vars.used[servers[0]]
    literal = model.binary(name)
    add_any(model, literal, [job_vars.used[s] for s in servers])
    return literal


def _ring_neighbours(
    model: AlgebraicModel,
    network: RoutedNetwork,
    job_vars: JobVariables,
    literal: pulp.LpVariable,
    pairs: Iterable[tuple[int, int]],
) -> None:
    """Join two servers in use where none between them is in use, or none outside, where the ring closes."""
    component = network.eligibility.routes(job_vars.job).component
    for first, second in pairs:
        others = [s for s in job_vars.used if component[s] == component[first] and s not in (first, second)]
        both = job_vars.used[first] + job_vars.used[second] - 1
        for outside, where in ((False, "inside"), (True, "outside")):
            # The row forces the literal only where both servers are in use and no other one on this arc of the ring is.
            besides = model.total(job_vars.used[s] for s in others if (first < s < second) != outside)
            model.add(literal >= both - besides, f"ring_{literal.name}_{first}_{second}_{where}")


def add_channel(model: AlgebraicModel, network: RoutedNetwork, job_vars: JobVariables) -> ChannelEncoding:
    """Return the smallest rate and the largest latency among links and shared fabrics in use (specification: ring).

    Rate in bytes a second and latency in microseconds, as order encodings.

    `model`: the program, which receives columns and rows.
    """
    if job_vars.job.slots < 2:
        return ChannelEncoding(OrderEncoding((1,), ()), OrderEncoding((0,), ()))
    cluster = network.cluster
    uses = [(cluster.links[k].bandwidth, cluster.links[k].latency_us, literal) for k, literal in job_vars.links.items()]
    for s in job_vars.used:
        workers = job_vars.on_server(network.eligibility, s)
        if len(workers) > 1:
            shared = _shared(model, f"shared_{job_vars.number}_{s}", workers)
            uses.append((cluster.servers[s].fabric_bandwidth, cluster.servers[s].fabric_latency_us, shared))
    # The smallest rate is the largest of the negated rates, so one encoding serves both.
    rate = _encode_maximum(model, f"slower_{job_vars.number}", [(-rate, literal) for rate, _, literal in uses])
    latency = _encode_maximum(model, f"later_{job_vars.number}", [(latency, literal) for _, latency, literal in uses])
    return ChannelEncoding(OrderEncoding(tuple(-value for value in rate.values), rate.steps), latency)


def _shared(model: AlgebraicModel, name: str, workers: Sequence[pulp.LpVariable]) -> pulp.LpVariable:
    """Return the literal that two or more of the workers force."""
    literal = model.binary(name)
    # One direction suffices: a literal that holds without need never makes a transfer shorter.
    model.add(model.total(workers) <= 1 + (len(workers) - 1) * literal, name)
    return literal


def _encode_maximum(
    model: AlgebraicModel, name: str, uses: Sequence[tuple[int, pulp.LpVariable]]
) -> OrderEncoding[pulp.LpVariable]:
    """Return the order encoding of the largest value in use."""
    values = tuple(sorted({value for value, _ in uses}))
    steps = tuple(model.binary(f"{name}_{step}") for step in range(1, len(values)))
    for above, below in pairwise(steps):
        model.add(below <= above, f"steps_{below.name}")
    for k, (value, literal) in enumerate(uses):
        if value > values[0]:
            model.add(literal <= steps[values.index(value) - 1], f"{name}_use_{k}")
    return OrderEncoding(values, steps)
