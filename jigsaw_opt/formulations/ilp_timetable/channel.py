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

__all__ = ["ChannelEncoding", "add_channel", "add_links"]

ChannelEncoding: TypeAlias = order_encoding.ChannelEncoding["pulp.LpVariable"]


def add_links(model: AlgebraicModel, network: RoutedNetwork, it: JobVariables) -> None:
    """Let a job use the links on the routes between neighbours of its ring (specification: ring).

    Parameters
    ----------
    model
        The program, which receives columns and rows.
    network
        The instance, its GPUs and routes.
    it
        Variables of the job; `it.links` is filled in.
    """
    if it.job.slots < 2 or not network.cluster.links:
        return
    for link, pairs in sorted(network.routes(it.job, tuple(it.used)).items()):
        literal = model.binary(f"link_{it.number}_{link}")
        it.links[link] = literal
        side = network.side(it.job, link)
        if side is not None:
            _bridge(model, network, it, link, side)
        else:
            _ring_neighbours(model, network, it, literal, pairs)


def _bridge(model: AlgebraicModel, network: RoutedNetwork, it: JobVariables, link: int, side: frozenset[int]) -> None:
    """Let a closed ring cross the only way between two sides exactly where it has servers on both."""
    component = network.eligibility.routes(it.job).component
    part = {component[s] for s in side}
    inside = [s for s in it.used if component[s] in part]
    near, far = [s for s in inside if s in side], [s for s in inside if s not in side]
    sides = [_any_used(model, it, f"side_{it.number}_{link}_{end}", servers) for end, servers in enumerate((near, far))]
    # Linear form of: the link is in use exactly where both sides are.
    model.add(it.links[link] >= model.total(sides) - 1, f"bridge_{it.number}_{link}")
    for end, literal in enumerate(sides):
        model.add(it.links[link] <= literal, f"bridge_{it.number}_{link}_{end}")


def _any_used(model: AlgebraicModel, it: JobVariables, name: str, servers: Sequence[int]) -> pulp.LpVariable:
    """Return the literal of a worker on one of the servers."""
    if len(servers) == 1:
        return it.used[servers[0]]
    literal = model.binary(name)
    add_any(model, literal, [it.used[s] for s in servers])
    return literal


def _ring_neighbours(
    model: AlgebraicModel,
    network: RoutedNetwork,
    it: JobVariables,
    literal: pulp.LpVariable,
    pairs: Iterable[tuple[int, int]],
) -> None:
    """Join two servers in use where none between them is in use, or none outside, where the ring closes."""
    component = network.eligibility.routes(it.job).component
    for first, second in pairs:
        others = [s for s in it.used if component[s] == component[first] and s not in (first, second)]
        both = it.used[first] + it.used[second] - 1
        for outside, where in ((False, "inside"), (True, "outside")):
            # The row forces the literal only where both servers are in use and no other one on this arc of the ring is.
            besides = model.total(it.used[s] for s in others if (first < s < second) != outside)
            model.add(literal >= both - besides, f"ring_{literal.name}_{first}_{second}_{where}")


def add_channel(model: AlgebraicModel, network: RoutedNetwork, it: JobVariables) -> ChannelEncoding:
    """Return the smallest rate and the largest latency among links and shared fabrics in use (specification: ring).

    Parameters
    ----------
    model
        The program, which receives columns and rows.
    network
        The instance, its GPUs and routes.
    it
        Variables of the job, its links among them.

    Returns
    -------
    ChannelEncoding
        Rate in bytes a second and latency in microseconds, as order encodings.
    """
    if it.job.slots < 2:
        return ChannelEncoding(OrderEncoding((1,), ()), OrderEncoding((0,), ()))
    cluster = network.cluster
    uses = [(cluster.links[k].bandwidth, cluster.links[k].latency_us, literal) for k, literal in it.links.items()]
    for s in it.used:
        workers = it.on_server(network.eligibility, s)
        if len(workers) > 1:
            shared = _shared(model, f"shared_{it.number}_{s}", workers)
            uses.append((cluster.servers[s].fabric_bandwidth, cluster.servers[s].fabric_latency_us, shared))
    # The smallest rate is the largest of the negated rates, so one encoding serves both.
    rate = _ladder(model, f"slower_{it.number}", [(-rate, literal) for rate, _, literal in uses])
    latency = _ladder(model, f"later_{it.number}", [(latency, literal) for _, latency, literal in uses])
    return ChannelEncoding(OrderEncoding(tuple(-value for value in rate.values), rate.steps), latency)


def _shared(model: AlgebraicModel, name: str, workers: Sequence[pulp.LpVariable]) -> pulp.LpVariable:
    """Return the literal that two or more of the workers force."""
    literal = model.binary(name)
    # One direction suffices: a literal that holds without need never makes a transfer shorter.
    model.add(model.total(workers) <= 1 + (len(workers) - 1) * literal, name)
    return literal


def _ladder(
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
