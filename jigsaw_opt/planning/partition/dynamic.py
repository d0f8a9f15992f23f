"""PipeDream's dynamic program over positions and machines, level by level (Narayanan et al., SOSP'19, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.errors import UsageError, argument
from jigsaw_opt.planning.partition.costs import Level, LevelCosts, Variant
from jigsaw_opt.planning.partition.positions import CutPositions
from jigsaw_opt.problem.clock import check_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

_BLOCK = 192
"""Columns that are gone through at once, so that they stay in the processor's cache."""
_MOST_BYTES, _MOST_STEPS = 2 * 10**9, 10**8
"""Most bytes of the tables of a level, and most steps of its dynamic program, which take minutes."""


@dataclass(frozen=True, slots=True)
class LevelStage:
    """A stage of one level, or all of a model on the outermost one.

    `begin, end`: positions between which it lies. `replicas`: how many machines of the level have a copy.
    """

    begin: int
    end: int
    replicas: int
    time_s: float


class LevelTable:
    """Least times of one level for every part of the model that may be asked for.

    `costs`: costs of stages on this level. `within`: matrix that says between which positions a stage may lie. `rows`:
    where parts begin that are asked for. `replicate`: whether a stage may have several machines.
    """

    def __init__(self, costs: LevelCosts, within: NDArray[np.bool_], rows: Sequence[int], replicate: bool) -> None:
        self.costs, self.within = costs, within
        self.machines = costs.level.machines
        self._most = self.machines if replicate else 1
        self._require_size(len(rows))
        self._stages = [_LastStages(costs.behind_another(replicas), within) for replicas in range(1, self._most + 1)]
        self.best = {row: self._solve(row) for row in rows}

    def _require_size(self, rows: int) -> None:
        size, machines, most = len(self.within) - 1, self.machines, self._most
        steps = rows * most * (machines - (most - 1) / 2)
        gigabytes = 8 * (rows * machines * size + most * size**2) / 1e9
        if steps > _MOST_STEPS or 1e9 * gigabytes > _MOST_BYTES:
            raise UsageError(
                f"{machines} machines on one level are too many for {size} sets of layers: tables of {gigabytes:.1f} "
                f"GB and {steps:.0f} steps, where {_MOST_BYTES / 1e9:g} GB and {_MOST_STEPS} are the most; state "
                f"servers and racks as levels of {argument('machines')}, or fewer of them",
                code="too-large",
                path="machines",
            )

    def least_s(self) -> Times:
        """Return least times on all machines by begin and end; infinite where that was not asked for."""
        import numpy as np

        found = np.full(self.within.shape, np.inf)
        for row, times in self.best.items():
            found[row] = times[-1]
        return found

    def stages(self, begin: int, end: int) -> list[LevelStage]:
        """Return the stages of a part that reach its least time, first to last, by backtracking.

        Stages with their machines and times in seconds.

        `begin`: position at which the part begins, one of `rows`.
        """
        found: list[LevelStage] = []
        machines = self.machines
        while True:
            time = float(self.best[begin][machines - 1, end])
            split = self._split(begin, end, machines, time)
            if split is None:
                return [LevelStage(begin, end, machines, time), *reversed(found)]
            before, replicas = split
            length = float(self._stages[replicas - 1].times[before, end])
            found.append(LevelStage(before, end, replicas, length))
            end, machines = before, machines - replicas

    def _solve(self, row: int) -> Times:
        """Return ``best[m - 1, e]``: the least time, in seconds, of layers from `row` to e on m machines."""
        import numpy as np

        check_deadline()
        best = np.full((self.machines, len(self.within)), np.inf)
        # Entries of fewer machines are complete before they are read: a last stage takes at least one machine.
        for machines in range(1, self.machines + 1):
            now = best[machines - 1]
            if machines <= self._most:
                # One stage has all machines; or, below, a last stage has some, and the part before it the others.
                now[:] = self.costs.alone(machines, row)
            for replicas in range(1, min(self._most, machines - 1) + 1):
                fits = self.costs.fits_behind_another(replicas, machines)
                self._stages[replicas - 1].improve(now, best[machines - replicas - 1], fits)
        return best

    def _split(self, begin: int, end: int, machines: int, time: float) -> tuple[int, int] | None:
        """Return begin of the last stage, and replicas of that, which reach a time; None where one stage does."""
        if machines <= self._most and self.costs.alone(machines, begin)[end] == time:
            return None
        for replicas in range(1, min(self._most, machines - 1) + 1):
            last = self._stages[replicas - 1].times[:, end]
            fits = self.costs.fits_behind_another(replicas, machines)
            before = self.best[begin][machines - replicas - 1]
            for at in range(end):
                # The same operations on the same numbers as in `_solve`: floats are equal exactly.
                reached = self.within[at, end] and max(before[at], last[at]) == time
                if reached and (fits is None or fits[at, end]):
                    return at, replicas
        return None


class _LastStages:
    """Times of last stages by their begins and ends."""

    def __init__(self, times: Times, within: NDArray[np.bool_]) -> None:
        import numpy as np

        self.times = np.where(within, times, np.inf)
        self._blocks = [(at, min(at + _BLOCK, len(times))) for at in range(0, len(times), _BLOCK)]

    def improve(self, best: Times, before: Times, fits: NDArray[np.bool_] | None) -> None:
        """Lower `best`, by end, to the least of the larger of `before`, by its begin, and the last stage."""
        import numpy as np

        for begin, end in self._blocks:
            # A stage ends behind its begin, and ends come later.
            both = np.maximum(before[:end, None], self.times[:end, begin:end])
            if fits is not None:
                both[~fits[:end, begin:end]] = np.inf
            np.minimum(best[begin:end], both.min(axis=0), out=best[begin:end])


def partition_levels(
    positions: CutPositions,
    levels: Sequence[Level],
    variant: Variant,
    activations: bool,
    replicate: bool,
    memory: int | None,
    keeps_own: bool = True,
) -> list[LevelTable]:
    """Return tables of all levels, innermost first; the last one knows the whole model."""
    import numpy as np

    inner = np.where(positions.within, compute_s(positions), np.inf)
    tables: list[LevelTable] = []
    below = 1
    for number, level in enumerate(levels):
        costs = LevelCosts(positions, level, inner, below, variant, activations, memory, keeps_own)
        rows = range(1) if number == len(levels) - 1 else range(len(inner))
        tables.append(LevelTable(costs, positions.within, rows, replicate))
        inner, below = tables[-1].least_s(), level.machines
    return tables


def compute_s(positions: CutPositions) -> Times:
    """Return by begin and end of a stage the seconds of its forward and backward passes."""
    return positions.between(lambda layer: layer.time_us, 1e6)


def time_of_stages(
    positions: CutPositions,
    levels: Sequence[Level],
    variant: Variant,
    activations: bool,
    divided: Sequence[Sequence[Sequence[LevelStage]]],
) -> float:
    """Return what a minibatch takes with given stages, in seconds, by the costs of `partition_levels`.

    `divided`: for each level, innermost first, the stages of each part that it divides; their own times do not count.
    """
    import numpy as np

    inner, below = compute_s(positions), 1
    for level, parts in zip(levels, divided, strict=True):
        costs = LevelCosts(positions, level, inner, below, variant, activations, None)
        inner, below = np.full_like(inner, np.inf), level.machines
        for first, *others in parts:
            times = [costs.behind_another(stage.replicas)[stage.begin, stage.end] for stage in others]
            last = (others or [first])[-1]
            inner[first.begin, last.end] = max(costs.alone(first.replicas, first.begin)[first.end], *times, 0.0)
    return float(inner[0, -1])
