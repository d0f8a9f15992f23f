"""What no packing at all is worth more than, whatever shares GPUs with what."""

from __future__ import annotations

from jigsaw_opt.formulations.packing import rate_relaxation
from jigsaw_opt.problem.packing import PackingProblem
from jigsaw_opt.solvers.engines.highs import solve_program

__all__ = ["rate_bound"]


def rate_bound(problem: PackingProblem) -> float:
    """Return the value of the rate relaxation (`jigsaw_opt.formulations.packing.rate_relaxation`).

    It holds against every timetable of jobs on as few servers as they need, not only against those of one or two jobs
    that `pack` chooses from, and is weaker than the bound that `pack` gives for these.
    """
    solved = solve_program(rate_relaxation(problem))
    assert solved.feasible, "to pack nothing is a solution"
    return -solved.objective
