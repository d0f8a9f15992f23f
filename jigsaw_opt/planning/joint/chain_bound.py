"""A bound of the makespan of all cuts at once, one stage a device, and the cuts that a limit leaves.

With ``M`` micro-batches, and passes of ``f``, ``b`` (and ``w``) microseconds, a makespan ``T`` of a cut has for each
stage

* ``A + M (f + b) <= T``, where ``A`` is the round trip of a micro-batch through the stages before: no pass of the stage
  is earlier than the forward passes there, and the backward passes there come after its last backward pass. With ``w``
  apart that of the first stage is in ``A``, as it comes last of all; and also ``H + M (f + b + w) <= T``, where ``H``
  is the way there alone;
* ``A + R + M (f + b) - min(c, M) f - b <= T``, where ``R`` is the round trip from this stage on and back to its end,
  and ``c`` how many micro-batches its memory holds: before its first backward pass it can do no more than ``c``
  forward passes;
* ``A + ceil(M / c) R <= T``: one of ``c`` places in memory is taken at least so often, for ``R`` each time, and ``w``
  more each time but the last.

``A`` only adds up along the stages, and all of these get harder as it grows. So the largest ``A`` at a position from
which the rest can be completed is found by dynamic programming from the end, and the least ``T`` by bisection. There
``R`` is the shortest that some cut behind has; where memory is limited, longer ones are told
apart: a state also has how much longer the round trip from its position on is than the shortest one, in whole
steps rounded down. For each such level it keeps the longest round trip before it from which the rest can be completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.planning.joint.cut_bound import NEVER, work_bound_us
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable
from jigsaw_opt.problem.clock import Clock, check_deadline, limited
from jigsaw_opt.solvers.options import Options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = NDArray[np.int64]

_MOST_STATES = 2_000_000
"""Most spans of stages times levels that one pass goes through."""
_LEVELS, _SPREAD = 24, 3
"""Levels at most, and the part of the shortest round trip that they are to cover."""


@dataclass(frozen=True, slots=True)
class _StageSpans:
    """Stages with some number, in any mode, as columns in the order of their begins; one entry a span and mode.

    `behind_us`: the shortest round trip from the begin on, by position. `again`: 1 where activations are computed
    again. `added_us`: what they add to the round trip before the stages behind them. `trip_us`: the shortest round trip
    from them on and back to their end. `work_us, least_us`: what the makespan has to be beside the round trip before,
    and what it has to be in any case. `filled_us`: what the makespan has to be less `trip_us`, as memory limits forward
    passes before the first backward pass. `turns, held_us`: how often a place in memory is taken, and how long it is
    held beyond the round trip but for the last time.
    """

    behind_us: Table
    begin: Table
    end: Table
    again: Table
    added_us: Table
    trip_us: Table
    work_us: Table
    least_us: Table
    filled_us: Table
    turns: Table
    held_us: Table

    def asked_us(self, longer_us: int = 0) -> Table:
        """Return what the makespan has to be beside the round trip before, with a longer one behind."""
        import numpy as np

        trip = self.trip_us + longer_us
        asked = np.maximum(self.work_us, self.filled_us + trip)
        # The inner minimum keeps the product within 64 bits.
        found: Table = np.maximum(asked, self.turns * np.minimum(trip, NEVER // self.turns) + self.held_us)
        return found

    def within(self, limit_us: int) -> _StageSpans:
        """Return the stages that a limit leaves, each judged by itself."""
        kept = (self.work_us <= limit_us) & (self.least_us <= limit_us) & (self.trip_us + self.filled_us <= limit_us)
        columns = [field.name for field in fields(self) if field.name != "behind_us"]
        return replace(self, **{name: getattr(self, name)[kept] for name in columns})


_CLOSE = 1000
"""Where each step of the bisection takes long, it ends one part of so many above the bound."""
_MOST_STARTS = 8
"""Cuts that reach the bound, from which a search begins."""


class ChainBound:
    """The bound for one configuration with one stage a device.

    `least_us`: what is proven so far, at first the work of the devices alone; None where no cut fits into memory.
    `proven`: whether that is what the conditions leave.
    """

    def __init__(self, table: StageTable) -> None:
        self.table = table
        layout = table.configuration.layout
        self._stages_count, self._micro_batches = layout.stages, layout.micro_batches
        self._last = len(table.positions.layers) - 1
        self._stages: list[_StageSpans] = []
        self.least_us: int | None = work_bound_us(table)
        self.proven = False

    def prove(self, options: Options) -> float:
        """Raise the bound as far as the conditions do, or a limit of time allows; return units of the engine: none."""
        try:
            with limited(Clock(options.time_limit, options.cancel)):
                if not self._stages:
                    self._stages = self._demands()
                self._raise(self._completes)
                if self.least_us is not None and self.table.choices.memory is not None:
                    self._raise(partial(self._completes, several=True), _CLOSE)
                self.proven = True
        except OutOfTimeError:
            pass
        return 0.0

    def starts(self) -> list[Cut]:
        """Return cuts to begin a search with: some that reach the bound, as soon as it is known."""
        if self.least_us is None or not self._stages:
            return []
        return list(islice(self._cuts(self.least_us), _MOST_STARTS))

    def open_cuts(self, limit_us: int, most: int) -> list[Cut] | None:
        """Return all cuts that may have a makespan of at most `limit_us`; None where they are too many.

        They are more than `most`, or nothing is known of them yet.
        """
        if not self._stages:
            return None
        found = list(islice(self._cuts(limit_us), most + 1))
        return found if len(found) <= most else None

    def _raise(self, completes: Callable[[int], bool], close: int | None = None) -> None:
        """Raise the bound to the least makespan that conditions leave, by bisection; or close to it, as `_CLOSE` is."""
        assert self.least_us is not None, "some cut fits"
        # The answer is seldom far above the work of all devices.
        high = self.least_us
        # A limit that cannot be kept is a new bound: the least makespan is above it.
        while not completes(high):
            check_deadline()
            # Steps by an eighth reach any makespan in few rounds, and the 1 lets them leave 0.
            self.least_us, high = high + 1, high + high // 8 + 1
            if high >= NEVER // 4:
                self.least_us = None
                return
        while self.least_us < high - (0 if close is None else high // close):
            check_deadline()
            middle = (self.least_us + high) // 2
            if completes(middle):
                high = middle
            else:
                self.least_us = middle + 1

    def _cuts(self, limit_us: int) -> Iterator[Cut]:
        import numpy as np

        largest = self._largest(limit_us)
        asked = [stage.asked_us() for stage in self._stages]

        def extend(number: int, begin: int, passed: int, ends: list[int], again: list[bool]) -> Iterator[Cut]:
            # `passed` is `A` of the stages so far. An end is taken only if the stages behind it can be completed,
            # so no branch is a dead end, and every cut that the conditions allow is found once.
            if number == self._stages_count:
                yield Cut(tuple(ends), tuple(again))
                return
            check_deadline()
            stage = self._stages[number]
            rows = np.arange(*np.searchsorted(stage.begin, (begin, begin + 1)))
            reached = passed + stage.added_us[rows]
            allowed = (passed + asked[number][rows] <= limit_us) & (stage.least_us[rows] <= limit_us)
            allowed &= reached <= largest[number + 1][0, stage.end[rows]]
            for at, row in zip(reached[allowed], rows[allowed], strict=True):
                end, mode = int(stage.end[row]), bool(stage.again[row])
                yield from extend(number + 1, end, int(at), [*ends, end], [*again, mode])

        if largest[0][0, 0] >= 0:
            yield from extend(0, 0, 0, [], [])

    def _completes(self, limit_us: int, several: bool = False) -> bool:
        """Return whether the conditions leave a cut with a makespan of at most `limit_us`.

        False proves that no cut has such a makespan; True proves nothing, as levels are rounded down.
        """
        return bool(self._largest(limit_us, several)[0][:, 0].max() >= 0)

    def _largest(self, limit_us: int, several: bool = False) -> list[Table]:
        """Return by stage, level and begin the largest `A` that can be completed within a limit.

        Level v: the round trip from a position on is at least v steps longer than the shortest one from there.
        """
        import numpy as np

        kept = [stage.within(limit_us) for stage in self._stages]
        most = min(_LEVELS, max(1, _MOST_STATES // max(1, sum(len(stage.begin) for stage in kept))))
        levels = most if several else 1
        step = max(1, int(kept[0].behind_us[0]) // (_SPREAD * levels))
        # Behind the last stage only the last position is an end, and there `A` may be all of the limit.
        found = [np.full((levels, self._last + 1), -NEVER, dtype=np.int64)]
        found[0][0, self._last] = limit_us
        for stage in reversed(kept):
            check_deadline()
            before = np.full_like(found[-1], -NEVER)
            higher = np.clip((stage.trip_us - stage.behind_us[stage.begin]) // step, 0, levels - 1)
            for level in range(levels):
                # `A` has to meet the stage's own condition and, with what the stage adds to the round trip, those of
                # the stages behind it.
                asked = stage.asked_us(level * step)
                passed = np.minimum(limit_us - asked, found[-1][level, stage.end] - stage.added_us)
                possible = passed >= 0
                # Differences from the shortest round trip add up. Rounding each down, and lowering those above the last
                # level to it, only weakens the conditions: what is impossible here is impossible.
                at = np.minimum(levels - 1, level + higher[possible]), stage.begin[possible]
                np.maximum.at(before, at, passed[possible])
            found.append(before)
        return found[::-1]

    def _places(self, again: bool) -> Table:
        """Return by stage the micro-batches that fit into memory at once, at most all; 0 where none does."""
        import numpy as np

        table, most = self.table, self._micro_batches
        if table.choices.memory is None:
            return np.where(table.positions.within, most, 0)
        # A stage that computes again holds the input of each micro-batch, and all activations of one at a time.
        held = table.received_bytes if again else table.activation_bytes
        room = table.choices.memory - table.static_bytes - (table.activation_bytes if again else 0)
        places = np.where(held > 0, room // np.maximum(1, held), np.where(room >= 0, most, 0))
        return np.where(table.positions.within, np.clip(places, 0, most), 0)

    def _added(self, again: bool, places: Table) -> Table:
        import numpy as np

        table = self.table
        passes = table.forward_us * (1 + again) + table.backward_us
        return np.where(places > 0, passes + 2 * table.transfer_us[None, :], NEVER)

    def _demands(self) -> list[_StageSpans]:
        """Return by stage what it asks for in each mode, with the least round trip behind it."""
        import numpy as np

        table, count = self.table, self._micro_batches
        fits = {again: self._places(again) for again in table.configuration.modes}
        added = {again: self._added(again, places) for again, places in fits.items()}
        cheapest = np.minimum.reduce(list(added.values()))
        behind = np.full(self._last + 1, NEVER, dtype=np.int64)
        behind[self._last] = 0
        heads, found = self._heads(fits), list[_StageSpans]()
        for number in reversed(range(self._stages_count)):
            check_deadline()
            columns = []
            for again, places in fits.items():
                trip = np.minimum(NEVER, added[again] + behind[None, :])
                begin, end = at = np.nonzero((places > 0) & (trip < NEVER // 2))
                forward, weight, room = table.forward_us[at], table.weight_us[at], places[at]
                back = table.backward_us[at] + again * forward
                # The three conditions in the head of this module, without `A`.
                work, turns = count * (forward + back), -(-count // room)
                least = heads[number][begin] + work + count * weight
                # The weights of the first stage come behind its last backward pass, which is the last of all.
                passed = added[again][at] + (0 if number else weight)
                mode, filled = np.full_like(begin, again), work - room * forward - back
                columns.append((begin, end, mode, passed, trip[at], work, least, filled, turns, (turns - 1) * weight))
            spans = [np.concatenate(column) for column in zip(*columns, strict=True)]
            order = np.argsort(spans[0], kind="stable")
            behind = np.minimum(NEVER, (cheapest + behind[None, :]).min(axis=1))
            found.append(_StageSpans(behind, *(column[order] for column in spans)))
        return found[::-1]

    def _heads(self, fits: dict[bool, Table]) -> list[Table]:
        """Return by stage and begin the least time of the forward passes before it and of sending."""
        import numpy as np

        table = self.table
        there = np.where(
            np.maximum.reduce(list(fits.values())) > 0, table.forward_us + table.transfer_us[None, :], NEVER
        )
        # Before the first stage nothing has passed, and it begins at position 0 alone.
        heads = np.full(self._last + 1, NEVER, dtype=np.int64)
        heads[0] = 0
        found = [heads]
        for _ in range(self._stages_count - 1):
            heads = np.minimum(NEVER, (heads[:, None] + there).min(axis=0))
            found.append(heads)
        return found
