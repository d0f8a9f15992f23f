"""Constraints on the links of a job's transfers and so on their rate and latency (specification: ring, transfer).

The largest of some values is stated as an order encoding of literals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.model import TimetableModel, add_any
from jigsaw_opt.formulations.timetable.order_encoding import ChannelEncoding, OrderEncoding
from jigsaw_opt.formulations.timetable.variables import JobVariables


def encode_maximum(model: TimetableModel, uses: Sequence[tuple[int, Any]], name: str = "") -> OrderEncoding[Any]:
    """Return the order encoding of the largest value in use.

    The different values, ascending, and a literal for each step between two of them.

    `uses`: values, and for each the literal that it is in use; the least value is taken to be in use always.
    """
    values = tuple(sorted({value for value, _ in uses}))
    steps = tuple(model.binary(f"{name}_{step}") for step in range(1, len(values)))
    for step, (above, below) in enumerate(pairwise(steps), 2):
        model.add_implication(below, above, f"steps_{name}_{step}")
    # Steps are only pushed to 1: the value reached is at least that of all in use, and no plan gains by a larger one.
    for k, (value, literal) in enumerate(uses):
        if value > values[0]:
            model.add_implication(literal, steps[values.index(value) - 1], f"{name}_use_{k}")
    return OrderEncoding(values, steps)


def add_links(model: TimetableModel, eligibility: GpuEligibility, job_vars: JobVariables[Any, Any]) -> None:
    """Let a job use the links on the routes between neighbours of its ring (specification: ring)."""
    if job_vars.job.slots < 2 or not eligibility.operations.cluster.links:
        return
    # Links on the routes of the same pairs of servers are used together: one literal serves them all.
    known: dict[tuple[tuple[int, int], ...], Any] = {}
    for link, pairs in sorted(eligibility.links_between(job_vars.job, tuple(job_vars.used)).items()):
        if tuple(pairs) in known:
            job_vars.links[link] = known[tuple(pairs)]
            continue
        name = f"{job_vars.number}_{link}"
        literal = job_vars.links[link] = known[tuple(pairs)] = model.binary(f"link_{name}")
        side = eligibility.side(job_vars.job, link)
        if side is not None:
            _bridge(model, eligibility, job_vars, literal, side, name)
        else:
            _ring_neighbours(model, eligibility, job_vars, literal, pairs, name)


def _bridge(
    model: TimetableModel,
    eligibility: GpuEligibility,
    job_vars: JobVariables[Any, Any],
    literal: Any,
    side: frozenset[int],
    name: str,
) -> None:
    """Let a closed ring cross the only way between two sides exactly where it has servers on both."""
    component = eligibility.routes(job_vars.job).component
    part = {component[s] for s in side}
    inside = [s for s in job_vars.used if component[s] in part]
    near, far = [s for s in inside if s in side], [s for s in inside if s not in side]
    sides = [_any_used(model, job_vars, servers, f"side_{name}_{end}") for end, servers in enumerate((near, far))]
    # A closed ring that leaves a side comes back over the same link, so the order within the ring does not matter.
    model.add_clause([literal, *map(model.negation, sides)], f"bridge_{name}")
    for end, one in enumerate(sides):
        model.add_implication(literal, one, f"bridge_{name}_{end}")


def _any_used(model: TimetableModel, job_vars: JobVariables[Any, Any], servers: Sequence[int], name: str) -> Any:
    """Return the literal of a worker on one of the servers."""
    if len(servers) == 1:
        return job_vars.used[servers[0]]
    literal = model.binary(name)
    add_any(model, literal, [job_vars.used[s] for s in servers], name)
    return literal


def _ring_neighbours(
    model: TimetableModel,
    eligibility: GpuEligibility,
    job_vars: JobVariables[Any, Any],
    literal: Any,
    pairs: Iterable[tuple[int, int]],
    name: str,
) -> None:
    """Join two servers in use where none between them is in use, or none outside, where the ring closes."""
    component = eligibility.routes(job_vars.job).component
    # The ring visits the servers in use in their order and then closes. Two of them are neighbours if none between them
    # is in use, or if none outside is (the closing step). Servers of other parts hold no worker then.
    for first, second in pairs:
        others = [s for s in job_vars.used if component[s] == component[first] and s not in (first, second)]
        both = [*(model.negation(job_vars.used[s]) for s in (first, second)), literal]
        for is_outside, where in ((False, "inside"), (True, "outside")):
            besides = [job_vars.used[s] for s in others if (first < s < second) != is_outside]
            model.add_clause([*both, *besides], f"ring_link_{name}_{first}_{second}_{where}")


def add_channel(
    model: TimetableModel, eligibility: GpuEligibility, job_vars: JobVariables[Any, Any]
) -> ChannelEncoding[Any]:
    """Return the smallest rate and the largest latency among links and shared fabrics in use (specification: ring).

    Rate in bytes a second and latency in microseconds, as order encodings.
    """
    if job_vars.job.slots < 2:
        return ChannelEncoding()
    cluster, j = eligibility.operations.cluster, job_vars.number
    uses = [(cluster.links[k].bandwidth, cluster.links[k].latency_us, literal) for k, literal in job_vars.links.items()]
    for s in job_vars.used:
        workers = job_vars.on_server(eligibility, s)
        if len(workers) > 1:
            shared = _shared(model, workers, f"shared_{j}_{s}")
            uses.append((cluster.servers[s].fabric_bandwidth, cluster.servers[s].fabric_latency_us, shared))
    # The smallest rate is the largest of the negated rates, so one encoding serves both.
    rate = encode_maximum(model, [(-rate, literal) for rate, _, literal in uses], f"slower_{j}")
    latency = encode_maximum(model, [(latency, literal) for _, latency, literal in uses], f"later_{j}")
    return ChannelEncoding(OrderEncoding(tuple(-value for value in rate.values), rate.steps), latency)


def _shared(model: TimetableModel, workers: Sequence[Any], name: str) -> Any:
    """Return the literal that two or more of the workers force."""
    literal = model.binary(name)
    # One direction suffices: a literal that holds without need never makes a transfer shorter.
    model.add(model.total(workers) <= 1 + (len(workers) - 1) * literal, name)
    return literal
