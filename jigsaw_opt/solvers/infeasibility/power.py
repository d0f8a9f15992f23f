"""Power caps under which a block of a job draws too much even alone, wherever the job has room."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.result import Conflict

__all__ = ["cause_of_power"]

_MOST_CAPS = 16
"""Caps of which each is tried alone with more watts."""


def cause_of_power(
    operations: Operations, job: str, has_place: Callable[[Sequence[PowerCap]], bool], most_watts: int
) -> Iterator[Conflict]:
    """Yield the conflict that caps leave a job no place, though it may have one without them.

    `has_place`: tells whether the job may have a place under some caps, each of its blocks running alone.
    """
    caps = operations.cluster.power_caps or ()
    if not caps or has_place(caps) or not has_place(()):
        return
    steps = range(most_watts + 1)
    found = []
    for number, cap in enumerate(caps[:_MOST_CAPS]):
        if has_place(_raised(caps, number, most_watts)):

            def fits(watts: int, number: int = number) -> bool:
                return has_place(_raised(caps, number, watts))

            found.append((bisect_left(steps, True, lo=cap.watts, key=fits), cap))
    others = " that other power caps leave" if len(caps) > 1 else ""
    told = f"some block of job {job} alone draws"
    if found:
        watts, cap = min(found, key=lambda each: each[0] - each[1].watts)
        where = f"under power cap {cap.name!r}, which allows {cap.watts:,} W, wherever the job has room{others}"
        why = f"at least {watts:,} W {where}"
        wanted = f"a cap of at least {watts:,} W, or a place for it outside the cap, is wanted"
    else:
        watts = bisect_left(steps, True, key=lambda watts: has_place(_raised(caps, None, watts)))
        where = f"such as {caps[0].name!r} of {caps[0].watts:,} W, wherever the job has room"
        why = f"more than a power cap allows, {where}"
        wanted = f"caps of at least {watts:,} W each, or a place for it outside of them, are wanted"
    yield Conflict("power", (job,), f"{told} {why}; {wanted}")


def _raised(caps: Sequence[PowerCap], number: int | None, watts: int) -> list[PowerCap]:
    """Return the caps where one of them, or each for None, allows at least so many watts."""
    return [altered(cap, watts=max(cap.watts, watts)) if number in (None, k) else cap for k, cap in enumerate(caps)]
