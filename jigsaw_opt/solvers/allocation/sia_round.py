"""Sia's one-round program by prices of GPUs, rounding and an integer program over a small core.

The few capacity rows are priced out: at given prices every job takes its cheapest configuration, whatever the others
do. The best prices, found by cutting planes as the Lagrangian dual of these rows, give a bound that is close to the
optimum; what the cheapest configurations take beyond the capacity, or leave of it, is repaired by the cheapest set of
exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.linear import ProgramBuilder
from jigsaw_opt.formulations.sia_round import NO_ALLOCATION, SiaRound
from jigsaw_opt.solvers.engines.highs import HighsEngine, solve_program

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers


_MOST_CUTS = 1000
"""Cutting planes after which the best prices so far are taken: any prices bound the value, so none are wrong."""
_TRUST = 0.3
"""Share of the best prices so far in the next ones; it keeps the first steps from swinging between extremes."""
_PRECISION = 1e-10
"""Relative distance of the dual's value from its optimum at which the search ends."""


class Point(NamedTuple):
    """The Lagrangian function at some prices: its value, and GPUs left by the cheapest choice."""

    value: float
    slack: Floats


@dataclass(frozen=True, slots=True)
class Columns:
    """A round in which staying idle is the last configuration, one without GPUs."""

    costs: Floats
    gpus: Floats
    capacity: Floats

    @classmethod
    def of(cls, problem: SiaRound) -> Columns:
        """Return the columns of a round."""
        import numpy as np

        costs = np.hstack([problem.cost, problem.idle[:, None]])
        gpus = np.vstack([problem.gpus, np.zeros_like(problem.capacity)]).astype(float)
        return cls(costs, gpus, problem.capacity.astype(float))

    def every_job_has_one(self) -> bool:
        """Return whether every job can use some configuration, if only that without GPUs."""
        import numpy as np

        return bool(np.isfinite(self.costs).any(axis=1).all())

    def with_noise(self, part: float, seed: int) -> Columns:
        """Return the same columns with every cost raised at random, so that no two choices tie any more.

        Of jobs that tie, the best prices then leave at most one a GPU type undecided.

        `part`: largest rise, as a share of the mean absolute cost.
        """
        import numpy as np

        mean = np.abs(self.costs[np.isfinite(self.costs)]).mean()
        noise = np.random.default_rng(seed).random(self.costs.shape)
        return Columns(self.costs + part * mean * noise, self.gpus, self.capacity)

    def priced(self, prices: Floats) -> Floats:
        """Return the costs plus the price of the GPUs, by job and configuration."""
        priced: Floats = self.costs + self.gpus @ prices
        return priced

    def slack(self, picked: Integers) -> Floats:
        """Return the GPUs of each type that a choice leaves; below 0 where it takes too many."""
        slack: Floats = self.capacity - self.gpus[picked].sum(axis=0)
        return slack

    def point(self, prices: Floats) -> Point:
        """Return the Lagrangian function at `prices`."""
        import numpy as np

        priced = self.priced(prices)
        picked = priced.argmin(axis=1)
        value = priced[np.arange(len(picked)), picked].sum() - prices @ self.capacity
        return Point(float(value), self.slack(picked))

    def bound(self, prices: Floats) -> float:
        """Return a bound that no choice within the capacity costs less than.

        Prices with few digits often give a better one, so these are tried, too.
        """
        return max(self.point(tried).value for tried in (prices, prices.round(4), prices.round(5)))

    def highest_prices(self) -> Floats:
        """Return prices at which no job gains by a GPU.

        Beyond them the dual function only falls if all jobs may stay idle.
        """
        import numpy as np

        finite = np.where(np.isfinite(self.costs), self.costs, -np.inf)
        gain = (finite.max(axis=1, keepdims=True) - self.costs).max(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(self.gpus > 0, gain[:, None] / self.gpus, 0.0)
        highest: Floats = each.max(axis=0)
        return highest


def best_prices(columns: Columns) -> Floats:
    """Return prices that maximise the Lagrangian function, which is concave and piecewise linear.

    Kelley's cutting planes: each value with its slope bounds the function from above; the next prices are where the
    lowest of these bounds is highest, drawn towards the best prices so far.
    """
    import numpy as np

    highest = columns.highest_prices()
    master = _master(highest)
    best_value, best = -np.inf, np.zeros_like(highest)
    prices = best
    for _ in range(_MOST_CUTS):
        value, slack = columns.point(prices)
        if value > best_value:
            best_value, best = value, prices
        master.add_row(-np.inf, float(value + slack @ prices), range(len(slack) + 1), np.append(slack, 1.0))
        proposed = master.run().values
        if proposed[-1] - best_value <= _PRECISION * max(1.0, abs(best_value)):
            break
        prices = np.maximum(_TRUST * best + (1 - _TRUST) * proposed[:-1], 0.0)
    return best


def _master(highest: Floats) -> HighsEngine:
    """Return the program of the cutting planes: one column per price, and the value to be maximised."""
    builder = ProgramBuilder()
    builder.add_columns([0.0] * len(highest), upper=highest)
    builder.add_columns([-1.0], float("-inf"))
    precise = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)
    return HighsEngine(builder.program(), precise)


__all__ = ["RoundSolution", "solve_round"]


@dataclass(frozen=True, slots=True)
class Base:
    """The cheapest choice at some prices.

    A choice within the capacity costs more than the bound by its reduced costs and by the price of the GPUs it leaves.

    `columns, prices`: configurations to choose from, and price of a GPU of each type. `picked`: the cheapest
    configuration of each job. `reduced`: cost of each configuration beyond that, ``(jobs, configurations)``.
    """

    columns: Columns
    prices: Floats
    picked: Integers
    reduced: Floats

    @classmethod
    def at(cls, columns: Columns, prices: Floats) -> Base:
        """Return the cheapest choice at some prices."""
        priced = columns.priced(prices)
        picked = priced.argmin(axis=1)
        return cls(columns, prices, picked, priced - priced.min(axis=1, keepdims=True))

    def excess(self, picked: Integers) -> float:
        """Return by how much a choice costs more than the bound."""
        import numpy as np

        return float(self.reduced[np.arange(len(picked)), picked].sum() + self.prices @ self.columns.slack(picked))


def within_capacity(base: Base) -> Integers | None:
    """Return a choice within the capacity.

    One job after the other takes the configuration that relieves most of the excess per cost.

    None if no change of one job relieves anything more.
    """
    import numpy as np

    picked = base.picked.copy()
    jobs, gpus = np.arange(len(picked)), base.columns.gpus
    slack = base.columns.slack(picked)
    while (excess := np.maximum(-slack, 0.0).sum()) > 0:
        after = slack + gpus[:, None, :] - gpus[None, :, :]
        relief = excess - np.maximum(-after, 0.0).sum(axis=2)
        extra = base.reduced - base.reduced[jobs, picked][:, None]
        gain = relief[picked]
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(gain > 0, extra / gain, np.inf)
        job, configuration = np.unravel_index(rate.argmin(), rate.shape)
        if not np.isfinite(rate[job, configuration]):
            return None
        slack = after[picked[job], configuration]
        picked[job] = configuration
    return picked


def best_exchange(base: Base, picked: Integers, jobs: int, gap: float) -> Integers:
    """Return the cheapest choice that differs from the base in a core of jobs, if it is cheaper than `picked`.

    An integer program chooses among the configurations of the core that cost no more than `picked` does in excess.

    `jobs`: jobs of the core, at most so many. `gap`: by how much the choice may cost more than the cheapest one.
    """
    import numpy as np

    columns, limit = base.columns, base.excess(picked)
    core = _core(base, limit, jobs)
    costs = np.where(base.reduced[core] <= limit, columns.costs[core], np.inf)
    left = columns.slack(np.delete(base.picked, core)).astype(np.int64)
    problem = SiaRound(costs[:, :-1], columns.gpus[:-1].astype(np.int64), left, costs[:, -1])
    solved = solve_program(problem.program(), {"mip_abs_gap": gap, "mip_rel_gap": 0.0})
    if not solved.feasible:
        return picked
    choice, found = problem.choice(solved.values), base.picked.copy()
    found[core] = np.where(choice == NO_ALLOCATION, costs.shape[1] - 1, choice)
    return found if base.excess(found) < limit else picked


def _core(base: Base, limit: float, jobs: int) -> list[int]:
    """Return jobs worth moving: those with the cheapest move of a kind, then with the second cheapest, and so on.

    Two moves are of one kind if they lead from the same configuration to the same one.
    """
    import numpy as np

    movable = base.reduced <= limit
    movable[np.arange(len(base.picked)), base.picked] = False
    owners, targets = np.nonzero(movable)
    costs = base.reduced[owners, targets]
    kinds = base.picked[owners] * base.reduced.shape[1] + targets
    order = np.lexsort((costs, kinds))
    starts = np.flatnonzero(np.diff(kinds[order], prepend=-1))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return list(dict.fromkeys(owners[np.lexsort((costs, ranks))].tolist()))[:jobs]


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
