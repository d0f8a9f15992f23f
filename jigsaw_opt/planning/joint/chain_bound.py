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
``R`` is the shortest that some cut behind has; where memory is limited, `StageTrips` tells longer
ones apart: a state also has how much longer the round trip from its position on is than the shortest one, in whole
steps rounded down. For each such level it keeps the longest round trip before it from which the rest can be completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


_CLOSE = 1000
"""Where each step of the bisection takes long, it ends one part of so many above the bound."""
_MOST_STARTS = 8
"""Cuts that reach the bound, from which a search begins."""


@dataclass(frozen=True, slots=True)
class _StageDemands:
    """Stages with number ``k`` in one mode: what they add to the round trip, and what they ask of the makespan.

    `added_us`: for each begin and end, forward and backward pass and sending across the end, both ways. `asked_us`: for
    each begin and end, what the makespan has to be beside `A`. `least_us`: for each begin and end, what the makespan
    has to be whatever `A` is.
    """

    added_us: Table
    asked_us: Table
    least_us: Table


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
        self._stages: list[dict[bool, _StageDemands]] = []
        self._trips: list[StageTrips] = []
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
                    self._raise(partial(completes, self._trips), _CLOSE)
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

    def _demands(self) -> list[dict[bool, _StageDemands]]:
        modes = self.table.configuration.modes
        fits = {again: self._places(again) for again in modes}
        return self._asked({again: self._added(again, fits[again]) for again in modes}, fits)

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
        modes = self.table.configuration.modes

        def extend(number: int, begin: int, passed: int, ends: list[int], again: list[bool]) -> Iterator[Cut]:
            # `passed` is `A` of the stages so far. An end is taken only if the stages behind it can be completed,
            # so no branch is a dead end, and every cut that the conditions allow is found once.
            if number == self._stages_count:
                yield Cut(tuple(ends), tuple(again))
                return
            check_deadline()
            for mode in modes:
                stages = self._stages[number][mode]
                reached = passed + stages.added_us[begin]
                allowed = (passed + stages.asked_us[begin] <= limit_us) & (stages.least_us[begin] <= limit_us)
                for end in np.flatnonzero(allowed & (reached <= largest[number + 1])):
                    yield from extend(number + 1, int(end), int(reached[end]), [*ends, int(end)], [*again, mode])

        if largest[0][0] >= 0:
            yield from extend(0, 0, 0, [], [])

    def _completes(self, limit_us: int) -> bool:
        return bool(self._largest(limit_us)[0][0] >= 0)

    def _largest(self, limit_us: int) -> list[Table]:
        """Return by stage and begin the largest `A` that can be completed within a limit."""
        import numpy as np

        # found[k][p]: largest `A` before stage k, which begins at position p, with which stages k.. can still end in
        # time. Behind the last stage only the last position is an end, and there `A` may be all of the limit.
        end = np.full(self._last + 1, -NEVER, dtype=np.int64)
        end[self._last] = limit_us
        found = [end]
        for number in reversed(range(self._stages_count)):
            best = np.full(self._last + 1, -NEVER, dtype=np.int64)
            for stages in self._stages[number].values():
                # Row: begin, column: end. `A` has to meet the stage's own condition and, with what the stage adds to
                # the round trip, those of the stages behind it.
                both = np.minimum(limit_us - stages.asked_us, found[-1][None, :] - stages.added_us)
                both[stages.least_us > limit_us] = -NEVER
                np.maximum(best, both.max(axis=1), out=best)
            found.append(best)
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

    def _asked(self, added: dict[bool, Table], fits: dict[bool, Table]) -> list[dict[bool, _StageDemands]]:
        """Return by stage what it asks for in each mode, with the least round trip behind it."""
        import numpy as np

        table, count = self.table, self._micro_batches
        size = self._last + 1
        cheapest = np.minimum.reduce(list(added.values()))
        behind = np.full(size, NEVER, dtype=np.int64)
        behind[self._last] = 0
        heads = self._heads(fits)
        found: list[dict[bool, _StageDemands]] = []
        for number in reversed(range(self._stages_count)):
            check_deadline()
            own: dict[bool, _StageDemands] = {}
            columns = []
            for again, places in fits.items():
                back = table.backward_us + again * table.forward_us
                trip = np.minimum(NEVER, added[again] + behind[None, :])
                work = count * (table.forward_us + back)
                # The three conditions in the head of this module, without `A`.
                filled = trip + work - np.minimum(places, count) * table.forward_us - back
                turns = -(-count // np.maximum(1, places))
                longer = (turns - 1) * table.weight_us
                # The inner minimum keeps the product within 64 bits: `turns` is at most `count`.
                taken = np.minimum(NEVER, turns * np.minimum(trip, NEVER // count) + longer)
                asked = np.maximum.reduce([work, filled, taken])
                possible = (places > 0) & (trip < NEVER // 2)
                least = heads[number][:, None] + work + count * table.weight_us
                # The weights of the first stage come behind its last backward pass, which is the last of all.
                passed = added[again] if number else np.minimum(NEVER, added[again] + table.weight_us)
                own[again] = _StageDemands(passed, np.where(possible, asked, NEVER), least)
                begin, end = np.nonzero(possible)
                demands = (passed, trip, work, least, filled - trip, turns, longer)
                columns.append((begin, end, *(demand[begin, end] for demand in demands)))
            found.append(own)
            behind = np.minimum(NEVER, (cheapest + behind[None, :]).min(axis=1))
            begin, end, *columns_of = map(np.concatenate, zip(*columns, strict=True))
            self._trips.insert(0, StageTrips(begin, end, behind, *columns_of))
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
