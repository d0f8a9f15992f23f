"""`interleave`: which jobs share GPUs by stages, by repeated matching or exactly, with a certified bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from jigsaw_opt.errors import UsageError
from jigsaw_opt.formulations.interleave import MOST_JOBS, Group, StagedJob, Timing, build, normalised_throughput
from jigsaw_opt.solvers.allocation.set_packing import optimum, relaxation

__all__ = ["Grouping", "Method", "group_jobs", "throughput_bound"]

Method = Literal["exact", "matching"]

_ROUNDS = (MOST_JOBS - 1).bit_length()
"""Rounds of pairing until groups are as large as they may be."""
_ROUNDING = 1e-6
"""Difference that an optimal value and its bound may have by rounding."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """All jobs in groups.

    `groups`: each make of group with its number. `bound`: upper bound on the value of every grouping; None where the
    method has not found one.
    """

    groups: Counter[Group]
    value: float
    bound: float | None


def group_jobs(
    jobs: Iterable[StagedJob],
    gpus: int,
    method: Method = "exact",
    timing: Timing = "steady",
    gap: float = 0.0,
    nodes: int | None = None,
) -> Grouping:
    """Put every job into a group so that the GPUs suffice and the sum of normalised throughputs is large.

    `method`: ``exact``: the set-packing program over all makes of groups. ``matching``: two rounds of maximum-weight
    matching, of jobs and then of pairs, as Muri does; without a bound. `gap, nodes`: the exact method may stop when so
    little, as a share, is missing to the bound, or after so many nodes of branch and bound; it then gives the matching
    where that is better. By default it goes on to the optimum.
    """
    parts = _classes(jobs)
    least = _least_gpus(parts, MOST_JOBS)
    if least > gpus:
        raise UsageError(
            f"the jobs need {least} GPUs even in groups of {MOST_JOBS}, and there are {gpus}", code="does-not-fit"
        )
    if method == "matching":
        return _matched(parts, gpus, timing)
    model = build(parts, MOST_JOBS, gpus, timing)
    packed = optimum(model, gap, nodes)
    if packed.value < packed.bound * (1 - gap) - _ROUNDING:
        matched = _matched(parts, gpus, timing)
        if matched.value > packed.value:
            return replace(matched, bound=packed.bound)
    return _grouping(model.groups(packed.solution), timing, packed.bound)


def throughput_bound(jobs: Iterable[StagedJob], gpus: int, timing: Timing = "steady") -> float:
    """Return a bound on the sum of normalised throughputs: the linear relaxation of the set-packing program."""
    return relaxation(build(_classes(jobs), MOST_JOBS, gpus, timing))


def _matched(parts: Counter[Group], gpus: int, timing: Timing) -> Grouping:
    for _ in range(_ROUNDS):
        # Pairing halves the GPUs in use at best, so a round may leave more in use than there are.
        model = build(parts, 2, max(gpus, _least_gpus(parts, 2)), timing)
        parts = model.groups(optimum(model).solution)
    return _grouping(parts, timing, None)


def _classes(jobs: Iterable[StagedJob]) -> Counter[Group]:
    return Counter((job,) for job in jobs)


def _least_gpus(parts: Mapping[Group, int], most_parts: int) -> int:
    """Return the GPUs that are in use once as many parts as possible share them."""
    by_gpus: Counter[int] = Counter()
    for group, number in parts.items():
        by_gpus[group[0].gpus] += number
    return sum(gpus * -(-number // most_parts) for gpus, number in by_gpus.items())


def _grouping(groups: Counter[Group], timing: Timing, bound: float | None) -> Grouping:
    return Grouping(groups, normalised_throughput(groups, timing), bound)
