"""Gavel's three objectives by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.gavel import OBJECTIVES, SharedCluster
from jigsaw_opt.solvers.engines.highs import solve_program

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats

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
