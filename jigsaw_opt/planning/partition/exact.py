"""The partition as a CP-SAT model on one level of machines: a referee for the dynamic program.

A layer's stage is free but for what it reads from, so cuts are not restricted to the prefixes of `prefixes_of`.

Variables: `y[l, k]`, layer `l` is in stage `k` or before; `r[k, n]`, stage `k` has `n` copies; `o[l, k]`, the output of
`l` is read behind stage `k`; and the time of the slowest stage. Times are nanoseconds, each coefficient rounded down,
so the bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from typing import TYPE_CHECKING

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.planning.partition.costs import Level, Variant
from jigsaw_opt.problem.layers import LayerGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["ExactPartition", "exact_partition"]


@dataclass(frozen=True, slots=True)
class ExactPartition:
    """The best partition that the exact model found, with its bound.

    `stages`: numbers of the layers of each stage, and its copies. `time_s`: seconds a minibatch of these stages, up to
    rounding of nanoseconds.
    """

    stages: tuple[tuple[tuple[int, ...], int], ...]
    time_s: float
    bound_s: float


def exact_partition(
    graph: LayerGraph,
    level: Level,
    *,
    variant: Variant = "paper",
    activations: bool = False,
    seconds: float = 60.0,
    workers: int = 1,
) -> ExactPartition:
    """Cut a model into stages on all machines of one level.

    Layers and copies of each stage, with the time and the bound in seconds a minibatch.

    `variant, activations`: as in `partition`. Outputs are counted once a cut, where some layer behind it reads them.
    """
    from ortools.sat.python import cp_model

    from jigsaw_opt.solvers.engines.cpsat import new_solver

    model = _PartitionModel(graph, level, variant, activations or variant == "paper")
    solver = new_solver(workers)
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model.proto)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise OutOfTimeError("no partition was found in time")
    return ExactPartition(model.stages(solver), solver.objective_value / 1e9, solver.best_objective_bound / 1e9)


class _PartitionModel:
    """The model."""

    def __init__(self, graph: LayerGraph, level: Level, variant: Variant, pays: bool) -> None:
        from jigsaw_opt.formulations.cpsat_model import new_model

        self.proto, self.graph, self.level, self.variant = new_model(), graph, level, variant
        self.count = min(level.machines, len(graph.layers))
        total = sum(layer.time_us for layer in graph.layers) * 1000
        exchange = sum(layer.parameter_bytes for layer in graph.layers) * 4 * level.machines
        self.time = self.proto.new_int_var(0, total + floor(exchange * 1e9 / level.bandwidth), "time")
        # before[layer][stage]: the layer is in that stage or an earlier one (order encoding).
        # copies[stage][n]: the stage has n machines. Times are nanoseconds, rounded down.
        self.before = [[self.proto.new_bool_var("") for _ in range(self.count)] for _ in graph.layers]
        self.copies = [[self.proto.new_bool_var("") for _ in range(level.machines + 1)] for _ in range(self.count)]
        self._add_order()
        self._add_copies()
        for stage in range(self.count):
            self._add_times(stage)
        if pays:
            self._add_transfers()
        self.proto.minimize(self.time)

    def stages(self, solver: cp_model.CpSolver) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Return layers and copies of each stage that has any."""
        found = []
        for stage, options in enumerate(self.copies):
            first = [
                sum(solver.value(literal) for literal in own[: stage + 1]) == 1 and solver.value(own[stage]) == 1
                for own in self.before
            ]
            copies = next(n for n, literal in enumerate(options) if solver.value(literal))
            if copies:
                found.append((tuple(at for at, there in enumerate(first) if there), copies))
        return tuple(found)

    def _add_order(self) -> None:
        """Add constraints: no layer is before one that it reads from."""
        for own in self.before:
            for earlier, later in pairwise(own):
                self.proto.add_implication(earlier, later)
            self.proto.add(own[-1] == 1)
        for tail, head in self.graph.edges:
            for one, other in zip(self.before[head], self.before[tail], strict=True):
                self.proto.add_implication(one, other)

    def _add_copies(self) -> None:
        """Add constraints: all machines are used, and stages without copies are the last ones and have no layers."""
        for options in self.copies:
            self.proto.add_exactly_one(options)
        self.proto.add(
            sum(n * literal for options in self.copies for n, literal in enumerate(options)) == self.level.machines
        )
        for options, following in pairwise(self.copies):
            # Which stages are empty makes no difference, so the last ones are: fewer equal solutions.
            self.proto.add_implication(options[0], following[0])
        for stage, options in enumerate(self.copies):
            literals = self._of_stage(stage, [1] * len(self.before))
            self.proto.add(literals == 0).only_enforce_if(options[0])
            self.proto.add(literals >= 1).only_enforce_if(~options[0])

    def _of_stage(self, stage: int, weights: Sequence[int]) -> cp_model.LinearExprT:
        """Return weights of the layers of a stage."""
        upto = sum(weight * own[stage] for weight, own in zip(weights, self.before, strict=True))
        if stage == 0:
            return upto
        return upto - sum(weight * own[stage - 1] for weight, own in zip(weights, self.before, strict=True))

    def _add_times(self, stage: int) -> None:
        """Compute and gradients of a stage by its copies."""
        compute = [layer.time_us * 1000 for layer in self.graph.layers]
        for copies in range(1, self.level.machines + 1):
            literal, factor = self.copies[stage][copies], 2 * (copies - 1) if self.variant == "paper" else None
            share = 4 * (copies - 1) / copies if factor is None else factor
            gradients = [
                floor(layer.parameter_bytes * share * 1e9 / self.level.bandwidth) for layer in self.graph.layers
            ]
            if factor is None:
                both = [a + b for a, b in zip(compute, gradients, strict=True)]
                self.proto.add(copies * self.time >= self._of_stage(stage, both)).only_enforce_if(literal)
                continue
            for weights in (compute, gradients):
                self.proto.add(copies * self.time >= self._of_stage(stage, weights)).only_enforce_if(literal)

    def _add_transfers(self) -> None:
        """Add the outputs that are read behind each cut."""
        sizes = [floor(2 * layer.sent_bytes * 1e9 / self.level.bandwidth) for layer in self.graph.layers]
        for stage in range(self.count - 1):
            sent = [self.proto.new_bool_var("") for _ in self.before]
            for tail, head in self.graph.edges:
                # An output is sent behind this stage if its layer is up to here and one that reads it is not.
                self.proto.add_bool_or([sent[tail], ~self.before[tail][stage], self.before[head][stage]])
            amount = sum(size * literal for size, literal in zip(sizes, sent, strict=True))
            if self.variant == "paper":
                self.proto.add(self.time >= amount)
                continue
            # The released costs share what is sent by the copies on either side; those of the first stage pay nothing.
            for payer in {stage, stage + 1} - {0}:
                for copies, literal in enumerate(self.copies[payer][1:], 1):
                    self.proto.add(copies * self.time >= amount).only_enforce_if(literal)
