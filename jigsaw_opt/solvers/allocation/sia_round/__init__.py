"""Sia's one-round program by prices of GPUs, rounding and an integer program over a small core.

The few capacity rows are priced out: at given prices every job takes its cheapest configuration, whatever the others
do. The best prices give a bound that is close to the optimum; what the cheapest configurations take beyond the
capacity, or leave of it, is repaired by the cheapest set of exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.sia_round import NO_ALLOCATION, SiaRound
from jigsaw_opt.solvers.allocation.sia_round.exchange import Base, best_exchange, within_capacity
from jigsaw_opt.solvers.allocation.sia_round.prices import Columns, best_prices
from jigsaw_opt.solvers.engines.highs import solve_program

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers

__all__ = ["RoundSolution", "solve_round"]

_NOISE = 1e-6
"""Largest noise that breaks ties between configurations, as a share of the mean cost."""
_TARGET_GAP = 2e-5
"""Relative gap at which a round is good enough."""
_TO_THE_OPTIMUM = {"mip_rel_gap": 0.0}
_CORE = 64
"""Largest number of jobs that the integer program moves."""


@dataclass(frozen=True, slots=True)
class RoundSolution:
    """Decision of a round.

    `choice`: configuration of each job, or `NO_ALLOCATION`. `prices`: price of a GPU of each type that gives the bound.
    """

    choice: Integers
    objective: float
    bound: float
    prices: Floats

    @property
    def gap(self) -> float:
        """Return the relative gap between objective and bound."""
        return (self.objective - self.bound) / max(abs(self.objective), 1e-12)


def solve_round(problem: SiaRound, *, seed: int = 0) -> RoundSolution | None:
    """Choose a configuration for every job.

    None if some job that must not be idle finds no GPUs.
    """
    columns = Columns.of(problem)
    if not columns.every_job_has_one():
        return None
    noisy = columns.with_noise(_NOISE, seed)
    prices = best_prices(noisy)
    bound = columns.bound(prices)
    base = Base.at(noisy, prices)
    picked = within_capacity(base)
    if picked is None:
        return _by_integer_program(problem, bound, prices)
    solution = _solution(problem, picked, bound, prices)
    if solution.gap <= _TARGET_GAP:
        return solution
    picked = best_exchange(base, picked, _CORE, _TARGET_GAP * abs(solution.objective))
    return min(solution, _solution(problem, picked, bound, prices), key=lambda one: one.objective)


def _solution(problem: SiaRound, picked: Integers, bound: float, prices: Floats) -> RoundSolution:
    import numpy as np

    choice = np.where(picked == problem.cost.shape[1], NO_ALLOCATION, picked)
    return RoundSolution(choice, problem.objective(choice), bound, prices)


def _by_integer_program(problem: SiaRound, bound: float, prices: Floats) -> RoundSolution | None:
    """Solve the round as an integer program.

    This is needed only where jobs must not be idle, since otherwise rounding always fits all of them.
    """
    solved = solve_program(problem.program(), _TO_THE_OPTIMUM)
    if not solved.feasible:
        return None
    choice = problem.choice(solved.values)
    return RoundSolution(choice, problem.objective(choice), max(bound, solved.bound), prices)
