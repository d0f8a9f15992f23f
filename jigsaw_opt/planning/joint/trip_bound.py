"""The bound of all cuts at once where round trips behind a stage are told apart, which counts in tight memory.

The dynamic program of `chain_bound` takes for each stage the shortest round trip behind it, whichever cut that is of.
Here a state also has how much longer the round trip from its position on is than the shortest one, in whole steps
rounded down. For each such level it keeps the longest round trip before it from which the rest can be completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from jigsaw_opt.planning.joint.cut_bound import NEVER
from jigsaw_opt.problem.clock import check_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = NDArray[np.int64]

__all__ = ["StageTrips", "completes"]

_MOST_STATES = 2_000_000
"""Most spans of stages times levels that one pass goes through."""
_LEVELS, _SPREAD = 24, 3
"""Levels at most, and the part of the shortest round trip that they are to cover."""


@dataclass(frozen=True, slots=True)
class StageTrips:
    """Stages with some number, in any mode, as columns; one entry a span and mode.

    `behind_us`: the shortest round trip from the begin on, by position. `added_us`: what they add to the round trip
    before the stages behind them. `trip_us`: the shortest round trip from them on and back to their end. `work_us,
    least_us`: what the makespan has to be beside the round trip before, and what it has to be in any case. `filled_us`:
    what the makespan has to be less `trip_us`, as memory limits forward passes before the first backward pass. `turns,
    held_us`: how often a place in memory is taken, and how long it is held beyond the round trip but for the last time.
    """

    begin: Table
    end: Table
    behind_us: Table
    added_us: Table
    trip_us: Table
    work_us: Table
    least_us: Table
    filled_us: Table
    turns: Table
    held_us: Table


def completes(stages: Sequence[StageTrips], limit_us: int) -> bool:
    """Return whether the conditions leave a cut with a makespan of at most `limit_us`.

    False proves that no cut has such a makespan; True proves nothing, as levels are rounded down.
    """
    import numpy as np

    shortest = int(stages[0].behind_us[0])
    kept = [_within(stage, limit_us) for stage in stages]
    # One level is the bound of `chain_bound` again; more of them cost time in proportion.
    levels = min(_LEVELS, max(1, _MOST_STATES // max(1, sum(len(stage.begin) for stage in kept))))
    # Level v: the round trip from a position on is at least v steps longer than the shortest one from there.
    step = max(1, shortest // (_SPREAD * levels))
    last = len(stages[0].behind_us) - 1
    # By level and position, the longest round trip before it.
    longest = np.full((levels, last + 1), -NEVER, dtype=np.int64)
    longest[0, last] = limit_us
    for stage in reversed(kept):
        check_deadline()
        before = np.full_like(longest, -NEVER)
        higher = np.clip((stage.trip_us - stage.behind_us[stage.begin]) // step, 0, levels - 1)
        for level in range(levels):
            trip = stage.trip_us + level * step
            asked = np.maximum(stage.work_us, stage.filled_us + trip)
            asked = np.maximum(asked, stage.turns * np.minimum(trip, NEVER // stage.turns) + stage.held_us)
            passed = np.minimum(limit_us - asked, longest[level, stage.end] - stage.added_us)
            possible = passed >= 0
            # Differences from the shortest round trip add up. Rounding each down, and lowering those above the last
            # level to it, only weakens the conditions: what is impossible here is impossible.
            at = np.minimum(levels - 1, level + higher[possible]), stage.begin[possible]
            np.maximum.at(before, at, passed[possible])
        longest = before
    return bool(longest[:, 0].max() >= 0)


def _within(stages: StageTrips, limit_us: int) -> StageTrips:
    """Return the stages that a limit leaves, each judged by itself."""
    kept = (
        (stages.work_us <= limit_us) & (stages.least_us <= limit_us) & (stages.trip_us + stages.filled_us <= limit_us)
    )
    columns = [field.name for field in fields(stages) if field.name != "behind_us"]
    return replace(stages, **{name: getattr(stages, name)[kept] for name in columns})
