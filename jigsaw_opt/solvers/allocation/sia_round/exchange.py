"""From the cheapest choice at the best prices to the cheapest one within the capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.solvers.allocation.sia_round.prices import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jigsaw_opt.formulations.linear import Floats, Integers


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


class _Moves(NamedTuple):
    """Changes of single jobs away from the base: job, new configuration, its reduced cost."""

    jobs: Integers
    configurations: Integers
    costs: Floats


def best_exchange(base: Base, picked: Integers, cells: int, jobs: int) -> Integers:
    """Return the cheapest choice that differs from the base in a core of jobs, if it is cheaper than `picked`.

    Dynamic programming over the GPUs left: job after job of the core either stays or moves. GPUs left are followed
    within a window around 0.

    `cells`: states of the window, at most about so many.
    """
    import numpy as np

    limit = base.excess(picked)
    moves = _core(base, limit, jobs)
    window = _CapacityWindow.around(base.columns.slack(base.picked), cells)
    steps = [_JobMoves.of(base, moves, job) for job in dict.fromkeys(moves.jobs.tolist())]
    costs = window.start()
    decisions = []
    for step in steps:
        costs, decided = window.after(costs, step)
        decisions.append(decided)
    end = window.cheapest_end(costs, base.prices)
    found = base.picked.copy()
    for step, decided in zip(reversed(steps), reversed(decisions), strict=True):
        if option := decided[end]:
            found[step.job] = step.configurations[option - 1]
            end = tuple(int(k) for k in np.array(end) - step.changes[option - 1])
    fits = (base.columns.slack(found) >= 0).all()
    return found if fits and base.excess(found) < limit else picked


def _core(base: Base, limit: float, jobs: int) -> _Moves:
    """Return moves worth trying: the cheapest of every kind, then the second cheapest, until the jobs are enough.

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
    ranked = owners[np.lexsort((costs, ranks))]
    core = list(dict.fromkeys(ranked[: 8 * jobs].tolist()))[:jobs]
    kept = np.flatnonzero(np.isin(owners, core))
    return _Moves(owners[kept], targets[kept], costs[kept])


class _JobMoves(NamedTuple):
    """The moves of one job: new configurations, GPUs that each frees, and its costs."""

    job: int
    configurations: Integers
    changes: Integers
    costs: Floats

    @classmethod
    def of(cls, base: Base, moves: _Moves, job: int) -> _JobMoves:
        import numpy as np

        own = moves.jobs == job
        targets = moves.configurations[own]
        freed = base.columns.gpus[base.picked[job]] - base.columns.gpus[targets]
        return cls(job, targets, freed.astype(np.int64), moves.costs[own])


class _CapacityWindow(NamedTuple):
    """GPUs left, from `low` on in `shape` cells along each type; the base leaves `first`."""

    low: Integers
    shape: tuple[int, ...]
    first: Integers

    @classmethod
    def around(cls, slack: Floats, cells: int) -> _CapacityWindow:
        """Return a window that holds 0 and, where it can, what the base leaves."""
        import numpy as np

        half = max(1, int(cells ** (1 / len(slack)) / 2))
        first = np.minimum(slack, half).astype(np.int64)
        low = np.minimum(first, -half)
        return cls(low, tuple(int(k) for k in half - low + 1), first)

    def start(self) -> Floats:
        """Return the costs of the states before the first job."""
        import numpy as np

        costs = np.full(self.shape, np.inf)
        costs[tuple(self.first - self.low)] = 0.0
        return costs

    def after(self, costs: Floats, step: _JobMoves) -> tuple[Floats, NDArray[np.int16]]:
        """Return the costs after a job, and what it decided: 0 to stay, or one more than the index of its move."""
        import numpy as np

        cheapest = costs.copy()
        decided = np.zeros(self.shape, dtype=np.int16)
        for option, (change, cost) in enumerate(zip(step.changes, step.costs, strict=True), 1):
            if (np.abs(change) >= self.shape).any():
                continue
            source = tuple(slice(max(0, -c), size - max(0, c)) for c, size in zip(change, self.shape))
            target = tuple(slice(max(0, c), size - max(0, -c)) for c, size in zip(change, self.shape))
            moved = costs[source] + cost
            np.copyto(decided[target], option, where=moved < cheapest[target])
            np.minimum(cheapest[target], moved, out=cheapest[target])
        return cheapest, decided

    def cheapest_end(self, costs: Floats, prices: Floats) -> tuple[int, ...]:
        """Return the state in which no type is short, with the least cost and price of what is left."""
        import numpy as np

        axes = [np.arange(size) + low for size, low in zip(self.shape, self.low)]
        total = costs.copy()
        for axis, (left, price) in enumerate(zip(axes, prices, strict=True)):
            paid = np.where(left >= 0, left * price, np.inf)
            total += paid.reshape([-1 if k == axis else 1 for k in range(len(axes))])
        return tuple(int(k) for k in np.unravel_index(total.argmin(), self.shape))
