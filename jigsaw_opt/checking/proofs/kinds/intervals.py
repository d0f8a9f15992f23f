"""Intervals of time that are too narrow for all the work that lies in them (docs/proofs.md: intervals)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.demands import (
    SpanDemand,
    WorkCurve,
    link_demand,
    named_links,
    priced_kinds,
    whole_demand,
)
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.placement_kinds import PlacementFacts, PlacementFactsOfJobs, gpu_demand
from jigsaw_opt.checking.proofs.facts.resource_facts import resource_facts
from jigsaw_opt.checking.proofs.kinds.completions import row_sum
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError, integer

_MOST_SPANS = 1000
"""A job whose iterations have more spans than this in all is charged for no interval of the resource."""


class _PricedInterval(NamedTuple):
    resource: int
    start: int
    end: int
    multiplier: int


class _IntervalResource(NamedTuple):
    capacity: int
    demand: Callable[[PlacementFacts], SpanDemand | None]


class _LeftWork:
    """Work of a job that lies in an interval, by how long after its end the job is complete.

    `bends`: those times, ascending, between which it is linear. `amounts`: its amount there.
    """

    def __init__(self, late: WorkCurve, inside: int) -> None:
        self._late, self._inside, self.bends = late, inside, late.bends(inside)
        self.amounts = [self.at(bend) for bend in self.bends]

    def at(self, time: int) -> int:
        return max(0, self._inside - self._late.at(time))


class _IntervalCharge(NamedTuple):
    """Price of a job's work in an interval: its end, the price of a unit, and the work."""

    end: int
    share: int
    work: _LeftWork


def intervals(step: ProofStep, facts: Facts) -> int:
    """Return what intervals and rows with multipliers leave to the weighted sum of completion times."""
    step.require(facts.objective == "weighted_completion", "is of weighted completion", "kind")
    denominator = step.integer("denominator", 1)
    jobs = {name: facts.job(step, name) for name in facts.data_parallel}
    left = {name: denominator * job.weight for name, job in jobs.items()}
    total = Fraction(0)
    for inner in step.steps("rows"):
        factors, known = row_sum(inner, facts)
        total += known
        for name, factor in factors.items():
            left[name] -= factor
            step.require(left[name] >= 0, f"uses more of job {name!r} than its weight", "rows")
    resources = [_resource(inner, facts) for inner in step.steps("resources")]
    priced = [_interval(one, path, len(resources)) for one, path in step.items("intervals")]
    total -= sum(each.multiplier * (each.end - each.start) * resources[each.resource].capacity for each in priced)
    kinds, moving = PlacementFactsOfJobs(), _may_move(facts)
    for name, job in jobs.items():
        own = [PlacementFacts(job, (), False, job.completion)] if moving else kinds.of(job)
        total += min(_cheapest(kind, left[name], _charges(kind, resources, priced)) for kind in own)
    return ceil(total / denominator)


def _may_move(facts: Facts) -> bool:
    """Return whether some data-parallel job may move."""
    return any(job.restart_us is not None for job in facts.data_parallel.values())


def _interval(one: object, path: str, resources: int) -> _PricedInterval:
    if not isinstance(one, Sequence) or len(one) != 4:
        raise ProofStepError(path, "is not resource, start, end and multiplier")
    found = _PricedInterval(*(integer(number, path, 0) for number in one))
    if found.resource >= resources or found.start >= found.end or not found.multiplier:
        raise ProofStepError(path, "has no such resource, no time between start and end, or no multiplier")
    return found


def _resource(step: ProofStep, facts: Facts) -> _IntervalResource:
    kind, moving = step.text("kind"), _may_move(facts)
    capacity = resource_facts(step, facts).capacity
    whole = whole_demand(step, facts)
    if moving:
        return _IntervalResource(capacity, lambda kind: whole(kind.facts))
    if kind == "gpus":
        prices = priced_kinds(step)
        return _IntervalResource(capacity, lambda kind: gpu_demand(kind, prices))
    links, channel = named_links(step, facts)
    return _IntervalResource(capacity, lambda kind: link_demand(kind.facts, kind.links_needed(links), channel))


def _charges(
    kind: PlacementFacts, resources: Sequence[_IntervalResource], priced: Sequence[_PricedInterval]
) -> list[_IntervalCharge]:
    """Return the charges of a kind of placement for all intervals in which it must work."""
    job, found = kind.facts, list[_IntervalCharge]()
    for number in dict.fromkeys(each.resource for each in priced):
        demand = resources[number].demand(kind)
        if demand is None or not demand.work or job.iterations * (len(demand.spans) + 1) > _MOST_SPANS:
            continue
        early, late = WorkCurve(job, demand, True), WorkCurve(job, demand, False)
        known: dict[int, _LeftWork] = {}
        for each in priced:
            inside = demand.work - early.at(each.start - job.release)
            if each.resource == number and inside > 0:
                if inside not in known:
                    known[inside] = _LeftWork(late, inside)
                found.append(_IntervalCharge(each.end, each.multiplier, known[inside]))
    return found


def _cheapest(kind: PlacementFacts, price: int, charges: Sequence[_IntervalCharge]) -> int:
    """Return the least of price times completion time and charges, over all integers from the least one on.

    Between bends all charges are linear, so that a walk over all bends finds it.
    """
    now = kind.completion
    value, slope, changes = price * now, price, list[tuple[int, int]]()
    for end, share, work in charges:
        first = bisect_right(work.bends, now - end)
        amount, before = work.at(now - end), 0
        value += share * amount
        last = now
        for bend, less in zip(work.bends[first:], work.amounts[first:], strict=True):
            fall = (less - amount) // (end + bend - last) * share
            if fall != before:
                changes.append((last, fall - before))
            last, amount, before = end + bend, less, fall
        changes.append((last, -before))
    least = value
    for at, change in sorted(changes):
        value, now = value + slope * (at - now), at
        slope += change
        least = min(least, value)
    return least
