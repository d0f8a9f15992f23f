"""A bound of the makespan of all cuts at once, several stages a device, as models of CP-SAT.

With ``M`` micro-batches, each device and each of its stages ``k``: ``A + M W <= T``, where ``A`` is the round trip of a
micro-batch through the stages before ``k``, and ``W`` the passes of ``k`` and the device's stages behind it.

In one model layers are as divisible as one likes; variables are the work of each stage. In the other one, ``x[l, k]``
says whether layer ``l`` is in stage ``k`` or before, and the memory of a device has to hold a micro-batch in each of
its stages at once, as it does when the micro-batch turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from importlib.util import find_spec
from itertools import combinations, islice, product
from math import comb
from typing import TYPE_CHECKING, Any

from jigsaw_opt.planning.joint.cut_bound import cut_bound_us
from jigsaw_opt.planning.joint.stage_table import Cut, StageTable

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["VirtualBound"]

_MOST_LITERALS = 2500
"""Of the model with whole layers; above that, divisible layers lose little."""
_UNITS = 1.0
"""Deterministic units of the engine for each model: some seconds at most."""
_MOST_TRIED = 20_000
"""Cuts that are gone through one by one."""


class VirtualBound:
    """The bound for one configuration with several stages a device.

    Parameters
    ----------
    table
        Costs of every stage.

    Attributes
    ----------
    least_us
        The bound; None where no cut fits into memory.
    """

    def __init__(self, table: StageTable) -> None:
        self.table = table
        self._layout = table.configuration.layout
        self._starts: list[Cut] = []
        self.least_us = self._least_us()

    def starts(self) -> list[Cut]:
        """Return cuts to begin a search with."""
        return self._starts

    def open_cuts(self, limit_us: int, most: int) -> list[Cut] | None:
        """Return all cuts that may have a makespan of at most `limit_us`; None where they are more than `most`."""
        inner, stages = range(1, len(self.table.positions.layers) - 1), self._layout.stages
        modes = self.table.configuration.modes
        if comb(len(inner), stages - 1) * len(modes) ** stages > _MOST_TRIED:
            return None
        found = list(islice(self._below(limit_us, inner), most + 1))
        return found if len(found) <= most else None

    def _below(self, limit_us: int, inner: range) -> Iterator[Cut]:
        within, stages = self.table.positions.within, self._layout.stages
        for places in combinations(inner, stages - 1):
            ends = (*places, len(within) - 1)
            if not all(within[span] for span in Cut(ends, ()).spans):
                continue
            for again in product(self.table.configuration.modes, repeat=stages):
                cut = Cut(ends, again)
                if cut_bound_us(self.table.problem(cut)) <= limit_us:
                    yield cut

    def _least_us(self) -> int | None:
        layout, positions = self._layout, self.table.positions
        if len(positions.layers) <= layout.stages:
            return None
        work = [self._work_us(layer) for layer in range(len(positions.graph.layers))]
        shared = layout.micro_batches * sum(map(sum, work)) * self.table.configuration.share / layout.gpus
        bounds = [-(-shared.numerator // shared.denominator)]
        if find_spec("ortools") is None:
            return bounds[0]
        model = _DivisibleModel(self.table, work)
        bounds.append(model.bound_us(model.solved()))
        if len(work) * layout.stages <= _MOST_LITERALS:
            whole = _WholeModel(self.table, work)
            solver = whole.solved()
            if solver is None:
                return None
            bounds.append(whole.bound_us(solver))
            self._starts = list(whole.cuts(solver))
        return max(bounds)

    def _work_us(self, number: int) -> tuple[int, int, int]:
        """Forward, backward and weight passes of a layer as measured, where it is computed as seldom as it may be."""
        layer = self.table.positions.graph.layers[number]
        weight = (layer.weight_us or 0) if self._layout.split else 0
        again = min(self.table.configuration.modes) * layer.forward_us
        return layer.forward_us, layer.backward_us - weight + again, weight


class _StageModel:
    """What both models share. Times are of `share.denominator` parts of a microsecond.

    Attributes
    ----------
    proto
        The model of the engine.
    makespan
        Its objective.
    found
        Whether the engine found a solution.
    """

    def __init__(self, table: StageTable, work: Sequence[tuple[int, int, int]]) -> None:
        from jigsaw_opt.formulations.cpsat_model import new_model

        self.table, self.work = table, work
        self.layout, self.share = table.configuration.layout, table.configuration.share
        self.proto, self.found = new_model(), False
        self.total = self.share.numerator * sum(map(sum, work))
        most = 2 * (self.layout.micro_batches + self.layout.stages) * self.total
        least = int(table.transfer_us[1:-1].min(initial=0))
        self.sending = [
            least * self.share.denominator * (self.layout.gpu_of[stage] != self.layout.gpu_of[stage + 1])
            for stage in range(self.layout.stages - 1)
        ]
        self.makespan = self.proto.new_int_var(0, most + 2 * sum(self.sending), "makespan")
        self.proto.minimize(self.makespan)

    def solved(self) -> cp_model.CpSolver | None:
        """Return the engine after its limit; None where there is no solution."""
        from ortools.sat.python import cp_model

        from jigsaw_opt.problem import clock
        from jigsaw_opt.solvers.engines.cpsat import new_solver

        solver = new_solver()
        solver.parameters.linearization_level = 2
        solver.parameters.max_deterministic_time = _UNITS
        solver.parameters.max_time_in_seconds = min(clock.left(), 1e9)
        status = solver.solve(self.proto)
        self.found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return None if status == cp_model.INFEASIBLE else solver

    def bound_us(self, solver: cp_model.CpSolver | None) -> int:
        """Return what the engine proved, in microseconds."""
        if solver is None:
            return 0
        # A little is left for the floats of the engine.
        proven = int(solver.best_objective_bound * (1 - 1e-9)) if solver.best_objective_bound > 2**52 else None
        value = round(solver.best_objective_bound) if proven is None else proven
        return -(-value // self.share.denominator)

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
    """Whole layers.

    Attributes
    ----------
    before
        By layer and stage, whether it is in that stage or before.
    """

    def __init__(self, table: StageTable, work: Sequence[tuple[int, int, int]]) -> None:
        super().__init__(table, work)
        layers, stages = range(len(work)), range(self.layout.stages)
        self.before = [[self.proto.new_bool_var("") for _ in stages[1:]] for _ in layers]
        for own in self.before:
            for stage in stages[2:]:
                self.proto.add_implication(own[stage - 2], own[stage - 1])
        for tail, head in table.positions.graph.edges:
            for one, other in zip(self.before[head], self.before[tail], strict=True):
                self.proto.add_implication(one, other)
        for stage in stages:
            self.proto.add(self._sum([1] * len(work), stage) >= 1)
        for stage in stages:
            self._add_load(stage)
        if table.choices.memory is not None:
            for gpu in range(self.layout.gpus):
                self._add_memory([stage for stage in stages if self.layout.gpu_of[stage] == gpu])

    def cuts(self, solver: cp_model.CpSolver) -> Iterator[Cut]:
        """Go through the cut of the solution, if it is one at positions."""

        if not self.found:
            return
        place = {layers: at for at, layers in enumerate(self.table.positions.layers)}
        sets = [
            sum(1 << layer for layer, own in enumerate(self.before) if solver.boolean_value(own[stage]))
            for stage in range(self.layout.stages - 1)
        ]
        if all(it in place for it in sets):
            modes = self.table.configuration.modes
            ends = (*(place[it] for it in sets), len(place) - 1)
            yield Cut(ends, (min(modes),) * self.layout.stages)

    def _upto(self, amounts: Sequence[int], stage: int) -> Any:
        """Amounts of the layers up to a stage."""
        if stage < 0:
            return 0
        if stage == self.layout.stages - 1:
            return sum(amounts)
        return sum(amount * own[stage] for amount, own in zip(amounts, self.before, strict=True))

    def _sum(self, amounts: Sequence[int], stage: int) -> Any:
        return self._upto(amounts, stage) - self._upto(amounts, stage - 1)

    def _add_load(self, stage: int) -> None:
        """The work of a stage and those behind it, with the way there and back, or there alone and weights."""
        scale, count = self.share.numerator, self.layout.micro_batches
        forward, back, whole = (
            [scale * amount for amount in column]
            for column in zip(*((f, f + b, f + b + w) for f, b, w in self.work), strict=True)
        )
        sent = sum(self.sending[:stage])
        for before, own, ways in ((back, back, 2), (forward, whole, 1)):
            load = sum(self._sum(own, other) for other in self.behind(stage))
            self.proto.add(self.makespan >= self._upto(before, stage - 1) + ways * sent + count * load)

    def _add_memory(self, stages: Sequence[int]) -> None:
        """What is held all the time, and one micro-batch in each stage where nothing is computed again."""
        table, layers = self.table, self.table.positions.graph.layers
        fixed = [layer.parameter_bytes * table.positions.graph.state_factor for layer in layers]
        kept = [layer.activation_bytes for layer in layers]
        scale = self.share
        if any(table.configuration.modes):
            kept = [0] * len(layers)
        amounts = [
            scale.denominator * always + scale.numerator * held for always, held in zip(fixed, kept, strict=True)
        ]
        held = sum(self._sum(amounts, stage) for stage in stages)
        assert table.choices.memory is not None, "only then is this called"
        self.proto.add(held <= scale.denominator * table.choices.memory)
