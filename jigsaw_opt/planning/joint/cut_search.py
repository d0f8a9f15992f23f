"""Good cuts by local search: the cut of the bound and the balanced one, and boundaries of stages moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

from jigsaw_opt.planning.joint.chain_bound import ChainBound
from jigsaw_opt.planning.joint.cut_bound import cut_bound_us
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable
from jigsaw_opt.planning.joint.virtual_bound import VirtualBound
from jigsaw_opt.planning.limits import Limits
from jigsaw_opt.planning.pipeline.list_schedule import RULES, list_schedule, makespan_us, rules_of
from jigsaw_opt.planning.pipeline.orders import Orders
from jigsaw_opt.planning.pipeline.search import fitting
from jigsaw_opt.planning.pipeline.stages import PipelineProblem


def balanced_cut(table: StageTable) -> Cut | None:
    """Return the cut whose slowest stage takes least time; None where there is none within the memory.

    Of a device's memory each stage has as much as the micro-batches take that 1F1B has in flight there, if there is
    such a cut, else that of one micro-batch. Stages compute activations again where all have to, or where nothing else
    fits.
    """
    modes = table.configuration.modes
    return next((cut for again in modes for whole in (True, False) if (cut := _balanced(table, again, whole))), None)


def _balanced(table: StageTable, again: bool, whole: bool) -> Cut | None:
    """Find the balanced cut by dynamic programming from the last stage; `whole`: as 1F1B has it in flight."""
    import numpy as np

    layout, never = table.configuration.layout, 2**60
    # A stage takes so much of its device for each micro-batch, and the slowest one sets the speed of all.
    work = table.forward_us * (1 + again) + table.backward_us + table.weight_us
    held = table.received_bytes if again else table.activation_bytes
    always = table.static_bytes + (table.activation_bytes if again else 0)
    last = len(work) - 1
    best = np.full(last + 1, never, dtype=np.int64)
    best[last] = 0
    choices = []
    for stage in reversed(range(layout.stages)):
        # 1F1B has as many micro-batches in flight at a stage as there are devices from it on, itself included.
        flight = min(layout.micro_batches, -(-(layout.stages - stage) // layout.chunks)) if whole else 1
        possible = table.positions.within
        if table.choices.memory is not None:
            # Devices have several stages, so each gets its part of the memory.
            possible = possible & (layout.chunks * (always + flight * held) <= table.choices.memory)
        # Row: begin of the stage; column: its end, where the next one begins.
        slowest = np.maximum(np.where(possible, work, never), best[None, :])
        choices.append(slowest.argmin(axis=1))
        best = slowest.min(axis=1)
    if best[0] >= never:
        return None
    ends = [0]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    return Cut(tuple(ends[1:]), (again,) * layout.stages)


_PASS_UNITS = 6e-6
"""Deterministic units of a pass of a list schedule, about the seconds that it takes."""


def pass_units(pipeline: PipelineProblem) -> float:
    """Return the work of a list schedule of a pipeline."""
    return _PASS_UNITS * pipeline.layout.stages * pipeline.layout.micro_batches * len(pipeline.kinds)


_RULES_OF_ALL, _FAR = 2, 1.03
"""Rules that every cut is scheduled by; the others only where that is no longer than so many times the best."""


class ScheduledCut(NamedTuple):
    """A cut with the shortest schedule that is known for it."""

    makespan_us: int
    table: StageTable
    cut: Cut
    orders: Orders


def search_cuts(bound: ChainBound | VirtualBound, budget: Limits, until: float, seed: int) -> list[ScheduledCut]:
    """Return cuts with schedules of one configuration, shortest first; none where memory suffices for no schedule.

    `until`: the search ends once only this share of the limits is left, from 0 to 1.
    """
    search = _CutSearch(bound, budget, until)
    starts = bound.starts()
    balanced = balanced_cut(bound.table)
    for cut in (*starts, *([balanced] if balanced is not None else [])):
        search.take(cut)
    random = Random(seed)
    for _ in range(search.restarts):
        search.hill_climb()
        if search.over():
            break
        search.perturb(random)
    return sorted(
        search.known.values(), key=lambda schedule: (schedule.makespan_us, schedule.cut.ends, schedule.cut.recomputes)
    )


def schedule_balanced(bound: ChainBound | VirtualBound, budget: Limits) -> ScheduledCut | None:
    """Return the balanced cut with a schedule; None where memory suffices for no such cut or no list schedule of it."""
    balanced = balanced_cut(bound.table)
    return None if balanced is None else _CutSearch(bound, budget, 0.0).take(balanced)


class _CutSearch:
    """A local search under way."""

    restarts = 1000

    def __init__(self, bound: ChainBound | VirtualBound, budget: Limits, until: float) -> None:
        self.bound, self.budget, self.until = bound, budget, until
        self.table = bound.table
        self.known: dict[Cut, ScheduledCut] = {}
        self.seen: set[Cut] = set()
        self.best: ScheduledCut | None = None
        self.current: ScheduledCut | None = None
        self._rules = list(range(RULES))

    def over(self) -> bool:
        """Return whether nothing is left to be done: time, or a better makespan."""
        least = self.bound.least_us
        return self.budget.left() <= self.until or self.best is None or least is None or self.best.makespan_us <= least

    def take(self, cut: Cut) -> ScheduledCut | None:
        """Schedule a cut, unless it was seen or its bound is no better than the best."""
        if cut in self.seen:
            return self.known.get(cut)
        self.seen.add(cut)
        pipeline = self.table.problem(cut)
        # The bound takes much less time than a list schedule.
        if self.best is not None and cut_bound_us(pipeline) >= self.best.makespan_us:
            return None
        found = self._scheduled(cut, pipeline)
        if found is not None:
            self.known[cut] = found
            if self.best is None or found.makespan_us < self.best.makespan_us:
                self.best = self.current = found
        return found

    def hill_climb(self) -> None:
        """Move boundaries from the current cut on, as long as that shortens the schedule."""
        while self.current is not None:
            shorter = None
            for cut in self._neighbours(self.current.cut):
                if self.budget.left() <= self.until:
                    return
                found = self.take(cut)
                if found is not None and found.makespan_us < self.current.makespan_us:
                    shorter = found
                    break
            if shorter is None:
                return
            self.current = shorter

    def perturb(self, random: Random) -> None:
        """Go on from the best cut with some boundaries moved."""
        assert self.best is not None
        cut = self.best.cut
        for _ in range(random.randint(2, 4)):
            others = list(self._neighbours(cut))
            if others:
                cut = random.choice(others)
        found = self.take(cut)
        if found is not None:
            self.current = found

    def _neighbours(self, cut: Cut) -> Iterator[Cut]:
        """Yield cuts with one boundary, or all from one to another one, moved; and one stage in the other mode."""
        spans, within = cut.spans, self.table.positions.within
        # The last end is that of the model, which does not move.
        for number, (begin, end) in enumerate(spans[:-1]):
            after = spans[number + 1][1]
            for position in self._near(begin, end, after):
                if within[begin, position] and within[position, after]:
                    yield replace(cut, ends=(*cut.ends[:number], position, *cut.ends[number + 1 :]))
        if len(self.table.configuration.modes) > 1:
            for number, again in enumerate(cut.recomputes):
                flags = cut.recomputes
                yield replace(cut, recomputes=(*flags[:number], not again, *flags[number + 1 :]))
        yield from self._shifted(cut)

    def _near(self, begin: int, end: int, after: int) -> Iterator[int]:
        """Yield positions between two others, 1, 2, 4, … away from one, nearest first."""
        distance = 1
        while distance < after - begin:
            for position in (end - distance, end + distance):
                if begin < position < after:
                    yield position
            distance *= 2

    def _shifted(self, cut: Cut) -> Iterator[Cut]:
        within = self.table.positions.within
        count = len(cut.ends) - 1
        for first in range(count):
            for last in range(first + 1, count):
                for step in (-1, 1):
                    ends = tuple(end + step * (first <= at <= last) for at, end in enumerate(cut.ends))
                    moved = replace(cut, ends=ends)
                    if all(0 <= a < b < len(within) and within[a, b] for a, b in moved.spans):
                        yield moved

    def _scheduled(self, cut: Cut, pipeline: PipelineProblem) -> ScheduledCut | None:
        """Return the shortest list or named schedule of a cut; of one far from the best, not of all rules."""
        best: tuple[int, Orders] | None = None
        rules = rules_of(pipeline)
        for tried, number in enumerate(list(self._rules), 1):
            self.budget.spend(pass_units(pipeline))
            found = list_schedule(pipeline, rules[number])
            if found is not None and (best is None or found[1] < best[0]):
                best = found[1], found[0]
                # What was good for this cut is tried first for the next one.
                # The loop goes over a copy, so that this list may change under it.
                self._rules.remove(number)
                self._rules.insert(0, number)
            far = best is None or (self.best is not None and best[0] > _FAR * self.best.makespan_us)
            # A break skips the named schedules below as well.
            if tried >= _RULES_OF_ALL and far and self.best is not None:
                break
            if best is not None and self.budget.over:
                break
        else:
            for orders in fitting(pipeline).values():
                self.budget.spend(pass_units(pipeline))
                length = makespan_us(pipeline, orders)
                if best is None or length < best[0]:
                    best = length, orders
        return None if best is None else ScheduledCut(best[0], self.table, cut, best[1])
