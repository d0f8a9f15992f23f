"""Constraints on the links of a job's transfers and so on their durations (specification: ring, transfer).

The largest of some values is stated as an order encoding of literals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from jigsaw_opt.formulations.cpsat.variables import JobVariables, add_any
from jigsaw_opt.formulations.timetable import order_encoding
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.formulations.timetable.order_encoding import OrderEncoding

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def encode_maximum(
    model: cp_model.CpModel, uses: Sequence[tuple[int, cp_model.IntVar]]
) -> OrderEncoding[cp_model.IntVar]:
    """Return the order encoding of the largest value in use.

    The different values, ascending, and a literal for each step between two of them.

    `uses`: values, and for each the literal that it is in use; the least value is taken to be in use always.
    """
    values = tuple(sorted({value for value, _ in uses}))
    steps = tuple(model.new_bool_var("") for _ in values[1:])
    for above, below in pairwise(steps):
        model.add_implication(below, above)
    # Steps are only pushed to 1: the value reached is at least that of all in use, and no plan gains by a larger one.
    for value, literal in uses:
        if value > values[0]:
            model.add_implication(literal, steps[values.index(value) - 1])
    return OrderEncoding(values, steps)


ChannelEncoding: TypeAlias = order_encoding.ChannelEncoding["cp_model.IntVar"]


def add_links(model: cp_model.CpModel, network: RoutedNetwork, job_vars: JobVariables) -> None:
    """Let a job use the links on the routes between neighbours of its ring (specification: ring)."""
    if job_vars.job.slots < 2 or not network.cluster.links:
        return
    # Links on the routes of the same pairs of servers are used together: one literal serves them all.
    known: dict[tuple[tuple[int, int], ...], cp_model.IntVar] = {}
    for link, pairs in sorted(network.routes(job_vars.job, tuple(job_vars.used)).items()):
        if tuple(pairs) in known:
            job_vars.links[link] = known[tuple(pairs)]
            continue
        literal = model.new_bool_var(f"{job_vars.job.name} over link {link}")
        job_vars.links[link] = known[tuple(pairs)] = literal
        side = network.side(job_vars.job, link)
        if side is not None:
            _bridge(model, network, job_vars, literal, side)
        else:
            _ring_neighbours(model, network, job_vars, literal, pairs)


def _bridge(
    model: cp_model.CpModel,
    network: RoutedNetwork,
    job_vars: JobVariables,
    literal: cp_model.IntVar,
    side: frozenset[int],
) -> None:
    """Let a closed ring cross the only way between two sides exactly where it has servers on both."""
    component = network.eligibility.routes(job_vars.job).component
    part = {component[s] for s in side}
    inside = [s for s in job_vars.used if component[s] in part]
    near, far = [s for s in inside if s in side], [s for s in inside if s not in side]
    first, second = (_any_used(model, job_vars, servers) for servers in (near, far))
    # A closed ring that leaves a side comes back over the same link, so the order within the ring does not matter.
    model.add_bool_or([literal, *(~x for x in (first, second) if x is not None)])
    if first is not None and second is not None:
        for x in (first, second):
            model.add_implication(literal, x)


def _any_used(model: cp_model.CpModel, job_vars: JobVariables, servers: Sequence[int]) -> cp_model.IntVar | None:
    """Return the literal of a worker on one of the servers."""
    if len(servers) == 1:
        return job_vars.used[servers[0]]
    literal = model.new_bool_var("")
    add_any(model, literal, [job_vars.used[s] for s in servers])
    return literal


def _ring_neighbours(
    model: cp_model.CpModel,
    network: RoutedNetwork,
    job_vars: JobVariables,
    literal: cp_model.IntVar,
    pairs: Iterable[tuple[int, int]],
) -> None:
    """Join two servers in use where none between them is in use, or none outside, where the ring closes."""
    component = network.eligibility.routes(job_vars.job).component
    # The ring visits the servers in use in their order and then closes. Two of them are neighbours if none between them
    # is in use, or if none outside is (the closing step). Servers of other parts hold no worker then.
    for first, second in pairs:
        others = [s for s in job_vars.used if component[s] == component[first] and s not in (first, second)]
        both = [~job_vars.used[first], ~job_vars.used[second], literal]
        between = [job_vars.used[s] for s in others if first < s < second]
        outside = [job_vars.used[s] for s in others if not first < s < second]
        model.add_bool_or([*both, *between])
        model.add_bool_or([*both, *outside])


def add_channel(model: cp_model.CpModel, network: RoutedNetwork, job_vars: JobVariables) -> ChannelEncoding:
    """Return the smallest rate and the largest latency among links and shared fabrics in use (specification: ring).

    Rate in bytes a second and latency in microseconds, as order encodings.
    """
    if job_vars.job.slots < 2:
        return ChannelEncoding(OrderEncoding((1,), ()), OrderEncoding((0,), ()))
    cluster = network.cluster
    uses = [(cluster.links[k].bandwidth, cluster.links[k].latency_us, literal) for k, literal in job_vars.links.items()]
    for s in job_vars.used:
        workers = job_vars.on_server(network.eligibility, s)
        if len(workers) > 1:
            shared = _shared(model, workers)
            uses.append((cluster.servers[s].fabric_bandwidth, cluster.servers[s].fabric_latency_us, shared))
    # The smallest rate is the largest of the negated rates, so one encoding serves both.
    rate = encode_maximum(model, [(-rate, literal) for rate, _, literal in uses])
    latency = encode_maximum(model, [(latency, literal) for _, latency, literal in uses])
    return ChannelEncoding(OrderEncoding(tuple(-value for value in rate.values), rate.steps), latency)


def _shared(model: cp_model.CpModel, workers: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
    """Return the literal that two or more of the workers force."""
    literal = model.new_bool_var("")
    # One direction suffices: a literal that holds without need never makes a transfer shorter.
    model.add(sum(workers) <= 1 + (len(workers) - 1) * literal)
    return literal
