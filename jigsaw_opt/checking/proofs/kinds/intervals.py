"""Intervals of time that are too narrow for all the work that lies in them (docs/proofs.md: intervals)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.demands import WorkCurve, spanned_resource, whole_demand
from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.placement_kinds import PlacementFacts, PlacementKinds, kind_demand
from jigsaw_opt.checking.proofs.facts.resource_facts import ResourceFacts
from jigsaw_opt.checking.proofs.kinds.completions import take_rows
from jigsaw_opt.checking.proofs.step import ProofStep, ProofStepError

_MOST_SPANS = 1000
"""A job whose iterations have more spans than this in all is charged for no interval of the resource."""


class _PricedInterval(NamedTuple):
    resource: int
    start: int
    end: int
    multiplier: int


class _WorkInside:
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
    work: _WorkInside


def intervals(step: ProofStep, facts: Facts) -> int:
    """Return what intervals and rows with multipliers leave to the weighted sum of completion times."""
    denominator = step.integer("denominator", 1)
    jobs = {name: facts.job(step, name) for name in facts.data_parallel}
    left = {name: denominator * job.weight for name, job in jobs.items()}
    total = take_rows(step, facts, left)
    resources = [spanned_resource(inner, facts) for inner in step.steps("resources")]
    priced = list[_PricedInterval]()
    for numbers, path in step.fours("intervals", "resource, start, end and multiplier"):
        priced.append(_PricedInterval(*numbers))
        if priced[-1].resource >= len(resources) or priced[-1].start >= priced[-1].end or not priced[-1].multiplier:
            raise ProofStepError(path, "has no such resource, no time between start and end, or no multiplier")
    total -= sum(each.multiplier * (each.end - each.start) * resources[each.resource].capacity for each in priced)
    moving = any(job.restart_us is not None for job in facts.data_parallel.values())
    kinds = PlacementKinds()
    for name, job in jobs.items():
        own = [PlacementFacts(job, (), False, job.completion)] if moving else kinds.of(job)
        total += min(_cheapest(kind, left[name], _charges(kind, resources, priced, moving)) for kind in own)
    return ceil(total / denominator)


def _charges(
    kind: PlacementFacts, resources: Sequence[ResourceFacts], priced: Sequence[_PricedInterval], moving: bool
) -> list[_IntervalCharge]:
    """Return the charges of a kind of placement for all intervals in which it must work."""
    job, found = kind.facts, list[_IntervalCharge]()
    for number in dict.fromkeys(each.resource for each in priced):
        resource = resources[number]
        demand = whole_demand(kind.facts, resource) if moving else kind_demand(kind, resource)
        if demand is None or not demand.work or job.iterations * (len(demand.spans) + 1) > _MOST_SPANS:
            continue
        early, late = WorkCurve(job, demand, True), WorkCurve(job, demand, False)
        known: dict[int, _WorkInside] = {}
        for each in priced:
            inside = demand.work - early.at(each.start - job.release)
            if each.resource == number and inside > 0:
                if inside not in known:
                    known[inside] = _WorkInside(late, inside)
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
