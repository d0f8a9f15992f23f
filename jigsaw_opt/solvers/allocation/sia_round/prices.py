"""The best prices of GPUs: the Lagrangian dual of the capacity rows, by cutting planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.linear import ProgramBuilder
from jigsaw_opt.solvers.engines.highs import HighsEngine

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers
    from jigsaw_opt.formulations.sia_round import SiaRound

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
