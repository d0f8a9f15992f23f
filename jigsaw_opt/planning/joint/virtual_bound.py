"""A bound of the makespan of all cuts at once, several stages a device, as models of CP-SAT.

With ``M`` micro-batches, each device and each of its stages ``k``: ``A + M W <= T``, where ``A`` is the round trip of a
micro-batch through the stages before ``k``, and ``W`` the passes of ``k`` and the device's stages behind it.

In one model layers are as divisible as one likes; variables are the work of each stage. In the other one, ``x[l, k]``
says whether layer ``l`` is in stage ``k`` or before. There the backward passes of a device come behind the first way to
the end and back to its last stage, and its memory has to hold a micro-batch in each of its stages at once, as it does
when the micro-batch turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from importlib.util import find_spec
from itertools import combinations, pairwise, product
from math import comb
from time import monotonic
from typing import TYPE_CHECKING, Any

from jigsaw_opt.planning.joint.cut_bound import cut_bound_us, work_bound_us
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable
from jigsaw_opt.solvers.options import Options

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MOST_LITERALS = 2500
"""Most literals of the model with whole layers; with more, divisible layers lose little."""
_UNITS = 1.0
"""Deterministic units of the engine for each model at most: some seconds."""
_MOST_PARTS = 2**53
"""Parts of a microsecond of the work of a step; models with more have numbers that the engine does not take."""
_MOST_TRIED = 5_000
"""Cuts that are gone through one by one."""


class VirtualBound:
    """The bound for one configuration with several stages a device.

    `least_us`: what is proven so far, at first the work of the devices alone; None where no cut fits into memory.
    `proven`: whether the models were gone through.
    """

    def __init__(self, table: StageTable) -> None:
        self.table = table
        self._layout = table.configuration.layout
        self._starts: list[Cut] = []
        self._all: list[tuple[int, Cut]] | None = None
        self.least_us: int | None = None if len(table.positions.layers) <= self._layout.stages else work_bound_us(table)
        self.proven = False

    def starts(self) -> list[Cut]:
        """Return cuts to begin a search with."""
        return self._starts

    def open_cuts(self, limit_us: int, most: int) -> list[Cut] | None:
        """Return all cuts that may have a makespan of at most `limit_us`; None where they are more than `most`."""
        inner, stages = range(1, len(self.table.positions.layers) - 1), self._layout.stages
        modes = self.table.configuration.modes
        # Counted before any of them is made.
        if comb(len(inner), stages - 1) * len(modes) ** stages > _MOST_TRIED:
            return None
        if self._all is None:
            self._all = sorted(self._bounded(inner), key=lambda bound: bound[0])
        found = [cut for bound, cut in self._all if bound <= limit_us]
        return found if len(found) <= most else None

    def _bounded(self, inner: range) -> Iterator[tuple[int, Cut]]:
        """Yield all cuts, each with its bound."""
        within, stages = self.table.positions.within, self._layout.stages
        for places in combinations(inner, stages - 1):
            ends = (*places, len(within) - 1)
            if not all(within[span] for span in Cut(ends, ()).spans):
                continue
            for again in product(self.table.configuration.modes, repeat=stages):
                cut = Cut(ends, again)
                yield cut_bound_us(self.table.problem(cut)), cut

    def prove(self, options: Options) -> float:
        """Raise the bound by the models in equal parts of the limits; return the deterministic units that they took."""
        layout, layers = self._layout, self.table.positions.graph.layers
        work = [self._work_us(layer) for layer in range(len(layers))]
        shared = layout.micro_batches * sum(map(sum, work)) * self.table.configuration.share / layout.gpus
        if self.least_us is None or find_spec("ortools") is None or shared.numerator >= _MOST_PARTS:
            self.proven = True
            return 0.0
        end = None if options.time_limit is None else monotonic() + options.time_limit
        spent = 0.0
        # The small model first: it always gives a bound, which the larger one may raise.
        kinds: list[type[_StageModel]] = [_DivisibleModel]
        if len(work) * layout.stages <= _MOST_LITERALS:
            kinds.append(_WholeModel)
        for number, kind in enumerate(kinds):
            seconds = math.inf if end is None else (end - monotonic()) / (len(kinds) - number)
            units = _UNITS if options.work_limit is None else options.work_limit / len(kinds)
            if seconds <= 0 or options.cancel.is_set():
                return spent
            model = kind(self.table, work)
            proven = model.solve(seconds, min(_UNITS, units))
            spent += model.spent
            if proven is None:
                self.least_us, self.proven = None, True
                return spent
            self.least_us = max(self.least_us, proven)
            self._starts += model.cuts()
        self.proven = True
        return spent

    def _work_us(self, number: int) -> tuple[int, int, int]:
        """Return passes of a layer (forward, backward, weights) as measured, with least recomputation."""
        layer = self.table.positions.graph.layers[number]
        weight = (layer.weight_us or 0) if self._layout.split else 0
        again = min(self.table.configuration.modes) * layer.forward_us
        return layer.forward_us, layer.backward_us - weight + again, weight


class _StageModel:
    """The common part of both models. Times are in `share.denominator` parts of a microsecond.

    `engine, found`: the engine once it has solved the model, and whether it found a solution.
    """

    def __init__(self, table: StageTable, work: Sequence[tuple[int, int, int]]) -> None:
        from jigsaw_opt.formulations.cpsat_model import new_model

        self.table, self.work = table, work
        self.layout, self.share = table.configuration.layout, table.configuration.share
        self.proto, self.found, self.spent = new_model(), False, 0.0
        self.engine: cp_model.CpSolver
        self.total = self.share.numerator * sum(map(sum, work))
        ways = 4 * self.layout.stages * int(table.transfer_us.max()) * self.share.denominator
        # More than any makespan worth finding: all passes one after another, and all sending.
        most = 2 * (self.layout.micro_batches + self.layout.stages) * self.total + ways
        least = int(table.transfer_us[1:-1].min())
        self.sending = [
            least * self.share.denominator * (self.layout.gpu_of[stage] != self.layout.gpu_of[stage + 1])
            for stage in range(self.layout.stages - 1)
        ]
        self.makespan = self.proto.new_int_var(0, most, "makespan")
        self.proto.minimize(self.makespan)

    def solve(self, seconds: float, units: float) -> int | None:
        """Return what the engine proves within its limits, in microseconds; None where there is no solution."""
        from ortools.sat.python import cp_model

        from jigsaw_opt.solvers.engines.cpsat import new_solver

        self.engine = new_solver()
        self.engine.parameters.linearization_level = 2
        self.engine.parameters.max_deterministic_time = units
        self.engine.parameters.max_time_in_seconds = min(seconds, 1e9)
        status = self.engine.solve(self.proto)
        self.spent = self.engine.response_proto.deterministic_time
        self.found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        # The models are relaxations: where they have no solution, no cut fits.
        if status == cp_model.INFEASIBLE:
            return None
        # A float beyond 2^52 may be rounded up, and before anything is proven there may be no number.
        proven = self.engine.best_objective_bound
        if not math.isfinite(proven):
            return 0
        whole = round(proven) if proven < 2**52 else int(proven * (1 - 1e-9))
        return -(-whole // self.share.denominator)

    def cuts(self) -> Iterator[Cut]:
        """Go through the cuts of the solution; none of a model that has no whole layers."""
        yield from ()

    def behind(self, stage: int) -> list[int]:
        """Return a stage and those behind it on its device."""
        gpu_of = self.layout.gpu_of
        return [other for other in range(stage, len(gpu_of)) if gpu_of[other] == gpu_of[stage]]


class _DivisibleModel(_StageModel):
    """Layers as divisible as one likes: a stage has an amount of work, no less of it forward than some layer has."""

    def __init__(self, table: StageTable, work: Sequence[tuple[int, int, int]]) -> None:
        super().__init__(table, work)
        stages, count = range(self.layout.stages), self.layout.micro_batches
        amounts = [self.proto.new_int_var(0, self.total, "") for _ in stages]
        # Parts of a layer may go anywhere, which no real cut allows. So the least makespan of this model is a lower
        # bound.
        self.proto.add(sum(amounts) == self.total)
        # With weights apart, what comes before and behind the work of a stage is a part of that of the stages before.
        split = self.layout.split
        part = min((Fraction(f, f + b + w) for f, b, w in self.work if f + b + w), default=Fraction(0))
        part = part if split else Fraction(1)
        for stage in stages:
            own = sum(amounts[other] for other in self.behind(stage))
            before = sum(amounts[:stage])
            sent = (1 if split else 2) * sum(self.sending[:stage])
            self.proto.add(
                part.denominator * (self.makespan - sent) >= part.numerator * before + part.denominator * count * own
            )


class _WholeModel(_StageModel):
    """Whole layers, or where positions follow one another, what lies between two of them.

    `before`: for each part and stage, whether it is in that stage or before.
    """

    def __init__(self, table: StageTable, work: Sequence[tuple[int, int, int]]) -> None:
        super().__init__(table, work)
        positions = table.positions
        last = len(positions.layers) - 1
        self.in_line = bool(positions.within[range(last), range(1, last + 1)].all())
        graph = positions.graph
        groups = [1 << at for at in range(len(graph.layers))]
        edges: Sequence[tuple[int, int]] = graph.edges
        if self.in_line:
            groups = [after & ~before for before, after in pairwise(positions.layers)]
            edges = list(pairwise(range(last)))
        members = [[at for at in range(len(graph.layers)) if group >> at & 1] for group in groups]
        self.parts = [[sum(work[at][kind] for at in own) for kind in range(3)] for own in members]
        self.bytes = [
            (
                graph.state_factor * sum(graph.layers[at].parameter_bytes for at in own),
                sum(graph.layers[at].activation_bytes for at in own),
            )
            for own in members
        ]
        stages = range(self.layout.stages)
        self.before = [[self.proto.new_bool_var("") for _ in stages[1:]] for _ in groups]
        self._add_order(edges)
        for stage in stages:
            self._add_load(stage)
        for gpu in range(self.layout.gpus):
            own = [stage for stage in stages if self.layout.gpu_of[stage] == gpu]
            self._add_turn(own[0], own[-1])
            if table.choices.memory is not None:
                self._add_memory(own)

    def cuts(self) -> Iterator[Cut]:
        """Go through the cut of the solution, if there is one, and it is one at positions."""
        if not self.found:
            return
        positions, inner = self.table.positions, range(self.layout.stages - 1)
        chosen = [[bool(self.engine.boolean_value(own[stage])) for own in self.before] for stage in inner]
        place = {layers: at for at, layers in enumerate(positions.layers)}
        ends = [
            sum(own) if self.in_line else place.get(sum(1 << at for at, there in enumerate(own) if there))
            for own in chosen
        ]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            modes = self.table.configuration.modes
            yield Cut((*known, len(place) - 1), (min(modes),) * self.layout.stages)

    def _add_order(self, edges: Sequence[tuple[int, int]]) -> None:
        """Add constraints: no layer is before one that it reads from, and no stage is empty."""
        for own in self.before:
            for earlier, later in pairwise(own):
                self.proto.add_implication(earlier, later)
        for tail, head in edges:
            for one, other in zip(self.before[head], self.before[tail], strict=True):
                self.proto.add_implication(one, other)
        for stage in range(self.layout.stages):
            self.proto.add(self._of([1] * len(self.parts), stage) >= 1)

    def _times(self, *kinds: int) -> list[int]:
        """Return for each part the time of some kinds of passes."""
        return [self.share.numerator * sum(part[kind] for kind in kinds) for part in self.parts]

    def _upto(self, amounts: Sequence[int], stage: int) -> Any:
        """Return amounts of the parts up to a stage."""
        if stage < 0:
            return 0
        if stage == self.layout.stages - 1:
            return sum(amounts)
        return sum(amount * own[stage] for amount, own in zip(amounts, self.before, strict=True))

    def _of(self, amounts: Sequence[int], stage: int) -> Any:
        return self._upto(amounts, stage) - self._upto(amounts, stage - 1)

    def _sent(self, begin: int, end: int) -> Any:
        """Return the time of sending across the ends of the stages from one to the one before another, one way."""
        if not self.in_line:
            return sum(self.sending[begin:end])
        sizes = [int(time_us) * self.share.denominator for time_us in self.table.transfer_us[1:]]
        total: Any = 0
        for stage in range(begin, end):
            if self.layout.gpu_of[stage] != self.layout.gpu_of[stage + 1]:
                # The last part before the end is where the next one is not before it.
                total += sum(
                    size * (own[stage] - later[stage])
                    for size, (own, later) in zip(sizes, pairwise(self.before), strict=False)
                )
        return total

    def _add_load(self, stage: int) -> None:
        """Add the work of a stage and those behind it, with the way there and back, or there alone and weights."""
        count, sent = self.layout.micro_batches, self._sent(0, stage)
        for ways, own, number in ((self._times(0, 1), self._times(0, 1), 2), (self._times(0), self._times(0, 1, 2), 1)):
            load = sum(self._of(own, other) for other in self.behind(stage))
            self.proto.add(self.makespan >= self._upto(ways, stage - 1) + number * sent + count * load)

    def _add_turn(self, first: int, last: int) -> None:
        """Make all backward passes of a device come after the first way to the end and back to its last stage."""
        forward, back, end = self._times(0), self._times(1), self.layout.stages - 1
        turned = sum(forward) + self._sent(0, end) + sum(back) - self._upto(back, last) + self._sent(last, end)
        passes = self.layout.micro_batches * sum(self._of(back, stage) for stage in self.behind(first))
        self.proto.add(self.makespan >= turned + passes + self._upto(back, first - 1) + self._sent(0, first))

    def _add_memory(self, stages: Sequence[int]) -> None:
        """Add the memory held all the time, and one micro-batch a stage where nothing is computed again."""
        table, share = self.table, self.share
        again = any(table.configuration.modes)
        amounts = [share.denominator * fixed + (not again) * share.numerator * kept for fixed, kept in self.bytes]
        held = sum(self._of(amounts, stage) for stage in stages)
        assert table.choices.memory is not None, "only then is this called"
        self.proto.add(held <= share.denominator * table.choices.memory)
