"""Combinatorial lower bounds: what every solver starts from, so that even greedy returns a certified gap.

Each bound is a proof in exact arithmetic; ``docs/bounds.md`` has the arguments. None expands iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.demand import (
    Claim,
    Resource,
    least_makespan,
    least_period,
    least_weighted_completion,
)
from jigsaw_opt.solvers.bounds.facts import Facts, GpuClass, gather, gpu_classes
from jigsaw_opt.solvers.bounds.gpus import gpu_resources
from jigsaw_opt.solvers.bounds.links import link_resources
from jigsaw_opt.solvers.bounds.packing import packing_bound

__all__ = ["Bound", "CompletionBound", "LatestEnds", "lower_bound"]

LatestEnds = Callable[[int], Mapping[int, int]]
"""Latest ends of jobs, in microseconds by index, in plans whose objective is at most a limit."""


class Bound(NamedTuple):
    """A proven lower bound on the objective.

    Parameters
    ----------
    value
        The bound, in the unit of the objective.
    reason
        What proves it, in the user's terms.
    """

    value: int
    reason: str


class CompletionBound(NamedTuple):
    """A proven lower bound on the weighted sum of ends.

    Parameters
    ----------
    value, reason
        As of a `Bound`.
    latest_ends
        What the proof says of single jobs.
    """

    value: int
    reason: str
    latest_ends: LatestEnds


def lower_bound(pieces: Pieces) -> Bound:
    """Best combinatorial lower bound on the objective of an instance.

    Parameters
    ----------
    pieces
        The instance, cut. Where it has no plan, the bound is still a valid number and means nothing.
    """
    classes = gpu_classes(pieces)
    facts = gather(pieces, classes)
    resources = [*gpu_resources(facts, classes), *link_resources(pieces, facts)]
    if pieces.objective == "weighted_completion":
        bounds = _completion_bounds(facts, resources)
    else:
        bounds = _length_bounds(pieces, facts, classes, resources)
    return max(bounds, key=lambda bound: bound.value)


def _completion_bounds(facts: Sequence[Facts], resources: Sequence[Resource]) -> Iterator[Bound]:
    """Weighted completion: every job on its own, or on one machine as fast as a whole resource."""
    yield Bound(sum(fact.job.weight * fact.end for fact in facts), "critical paths of all jobs")
    for resource in resources:
        claims = [
            Claim(fact.job.weight, fact.end, demand) for fact, demand in zip(facts, resource.demands, strict=True)
        ]
        yield Bound(least_weighted_completion(claims, resource.capacity), f"{resource.reason}, in Smith's order")


def _length_bounds(
    pieces: Pieces, facts: Sequence[Facts], classes: Sequence[GpuClass], resources: Sequence[Resource]
) -> Iterator[Bound]:
    """Makespan and period: the longest job, the fullest resource, the fullest GPU."""
    finite = pieces.horizon == "finite"
    longest = max(facts, key=lambda fact: fact.end)
    yield Bound(max(longest.end, 0 if finite else 1), f"critical path of job {longest.job.name}")
    for resource in resources:
        yield Bound(least_makespan(resource) if finite else least_period(resource), resource.reason)
    yield Bound(packing_bound(facts, classes, finite), "the largest workers, of which some GPU has several")
