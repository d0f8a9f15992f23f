"""Gavel's three objectives by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.gavel import OBJECTIVES, SharedCluster
from jigsaw_opt.solvers.engines.highs import solve_program

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

_FIRST_RANGE, _BISECTION_RATIO = (100.0, 1_000_000.0), 1.05
"""Seconds between which Gavel's code bisects, and the ratio of the ends at which it stops: to find what it finds."""
_BARRIER = {"solver": "ipm"}
"""The barrier method is faster here than the simplex method."""
_CENTRE = {"run_crossover": "off"}
"""Without its last step to a corner of the optimal set, equal columns have equal values."""


@dataclass(frozen=True, slots=True)
class SharedTime:
    """The optimum of one objective.

    `allocation`: share of its time that each job spends on each GPU type, ``(jobs, types)``. `value`: least normalised
    progress (``max_min``), total duration in seconds (``makespan``), or iterations a second (``max_sum``).
    """

    allocation: Floats
    value: float


def solve_gavel(cluster: SharedCluster, objective: str, *, centre: bool = False) -> SharedTime:
    """Solve one of `OBJECTIVES`; there is always a solution, as no job has to run.

    With `centre` equal jobs have equal shares, at the price of the last digits of the value.

    `centre`: whether equal jobs get equal shares, at the price of the last digits of the value.
    """
    solved = solve_program(OBJECTIVES[objective](cluster), _BARRIER | (_CENTRE if centre else {}))
    assert solved.feasible, "to allocate nothing is a solution"
    value = -solved.objective
    return SharedTime(
        cluster.allocation(solved.values), cluster.alone_s() / value if objective == "makespan" else value
    )


def bisected_duration(least: float) -> float:
    """Return the duration in seconds at which Gavel's own bisection ends, given the least possible duration.

    It halves 100 s to 10^6 s (the next range up to ten times as much where that is too short) until the ends are within
    5 %, and takes the upper end.
    """
    low, high = _FIRST_RANGE
    while (found := _bisected(least, low, high)) is None:
        low, high = high, 10 * high
    return found


def _bisected(least: float, low: float, high: float) -> float | None:
    found = None
    while _BISECTION_RATIO * low < high:
        middle = (low + high) / 2
        if middle >= least:
            high = found = middle
        else:
            low = middle
    return found
