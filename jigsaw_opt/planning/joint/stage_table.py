"""Costs of every stage that a model can be cut into, for one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from jigsaw_opt.errors import UsageError
from jigsaw_opt.planning.joint.choices import PipelineChoices, PipelineConfiguration
from jigsaw_opt.planning.partition.positions import CutPositions
from jigsaw_opt.planning.pipeline.costs import PipelineCosts
from jigsaw_opt.planning.pipeline.stages import PipelineProblem
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer
from jigsaw_opt.problem.workload import LARGEST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = NDArray[np.int64]


_MOST_POSITIONS = 1600
"""Tables have their square; twenty of them take some 400 MB."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Stages of a model.

    `ends`: position that each stage ends with, first to last. `recomputes`: for each stage, whether it computes its
    activations again.
    """

    ends: tuple[int, ...]
    recomputes: tuple[bool, ...]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """By stage, the positions that it begins and ends with."""
        return tuple(pairwise((0, *self.ends)))


@dataclass(frozen=True, slots=True)
class StageTable:
    """Costs of every stage, by the position that it begins (row) and ends with (column); microseconds and bytes.

    `forward_us, backward_us, weight_us`: passes of a micro-batch; the backward pass without its part for the weights
    where that is apart, also of stages that run both parts in one pass (`first_stage`): bounds hold for these too.
    `transfer_us`: for each position, how long sending takes across it, one way. `received_bytes`: held for a
    micro-batch by a stage that computes its activations again: what it is sent, and what it reads of the model's own
    input. `sent_bytes`: for each position, bytes of a micro-batch that are sent across it.
    """

    choices: PipelineChoices
    configuration: PipelineConfiguration
    positions: CutPositions
    forward_us: Table
    backward_us: Table
    weight_us: Table
    transfer_us: Table
    static_bytes: Table
    activation_bytes: Table
    received_bytes: Table
    sent_bytes: Table

    def problem(self, cut: Cut) -> PipelineProblem:
        """Return the pipeline of a cut."""
        spans, split = cut.spans, self.configuration.layout.split

        def column(table: Table) -> tuple[int, ...]:
            return tuple(int(table[span]) for span in spans)

        costs = PipelineCosts(
            column(self.forward_us),
            column(self.backward_us),
            column(self.weight_us) if split else (),
            tuple(int(self.transfer_us[end]) for end in cut.ends[:-1]),
            tuple(int(self.sent_bytes[end]) for end in cut.ends[:-1]),
            column(self.static_bytes),
            column(self.activation_bytes),
        ).recomputing(cut.recomputes, column(self.received_bytes))
        if self.choices.first_stage == "whole":
            costs = costs.first_whole()
        return PipelineProblem(costs, self.configuration.layout, self.choices.memory)


def stage_tables(
    positions: CutPositions, choices: PipelineChoices, configurations: Iterable[PipelineConfiguration]
) -> list[StageTable]:
    """Return the costs of every stage for some configurations; those with equal samples have the same arrays."""
    found: dict[Fraction, StageTable] = {}
    tables = []
    for configuration in configurations:
        known = found.get(configuration.share)
        if known is None:
            known = found[configuration.share] = stage_table(positions, choices, configuration)
        _require_exact(positions.graph, choices, configuration)
        tables.append(replace(known, configuration=configuration))
    return tables


def stage_table(positions: CutPositions, choices: PipelineChoices, configuration: PipelineConfiguration) -> StageTable:
    """Return the costs of every stage; times and sizes of a micro-batch are in proportion to its samples.

    Tables by begin (row) and end (column), in microseconds and bytes; shares are rounded up.

    `configuration`: layout, and the samples of a micro-batch as a share of those in the profile.
    """
    import numpy as np

    size, share = len(positions.layers), configuration.share
    if size > _MOST_POSITIONS:
        raise UsageError(
            f"the model can be cut at {size} places, and {_MOST_POSITIONS} are the most; merge layers", code="too-large"
        )

    _require_exact(positions.graph, choices, configuration)

    def scaled(amounts: Table) -> Table:
        """Return a share of each amount, rounded up."""
        found: Table = -(-amounts * share.numerator // share.denominator)
        return found

    def between(amount: Callable[[MeasuredLayer], int]) -> Table:
        return positions.between(amount).astype(np.int64)

    split = configuration.layout.split
    weight = between(lambda layer: layer.weight_us or 0) if split else np.zeros((size, size), dtype=np.int64)
    sent = scaled(positions.sent_bytes.astype(np.int64))
    sending = np.array([_transfer_us(int(size), choices) for size in sent], dtype=np.int64)
    # Nothing is sent into the model, nor out of it.
    sending[[0, -1]] = 0
    return StageTable(
        choices,
        configuration,
        positions,
        # Passes are blocks, which take at least a microsecond (`PipelineProblem.duration_us`).
        np.maximum(1, scaled(between(lambda layer: layer.forward_us))),
        np.maximum(1, scaled(between(lambda layer: layer.backward_us) - weight)),
        np.maximum(1, scaled(weight)) if split else weight,
        sending,
        between(lambda layer: layer.parameter_bytes) * positions.graph.state_factor,
        scaled(between(lambda layer: layer.activation_bytes)),
        sent[:, None] + scaled(between(lambda layer: layer.input_bytes or 0)),
        sent,
    )


def _transfer_us(size: int, choices: PipelineChoices) -> int:
    moved = 0 if choices.bandwidth is None else ceil(Fraction(size * 10**6, choices.bandwidth))
    return choices.latency_us + moved


def _require_exact(graph: LayerGraph, choices: PipelineChoices, configuration: PipelineConfiguration) -> None:
    """Refuse costs whose sums are beyond the largest integer of a document, which arrays might not hold either."""
    layout, share, layers = configuration.layout, configuration.share, graph.layers
    times = ceil(share * sum(2 * layer.forward_us + layer.backward_us for layer in layers)) + 3 * layout.stages
    sent = ceil(share * sum(layer.sent_bytes + (layer.input_bytes or 0) for layer in layers))
    kept = sum(layer.activation_bytes for layer in layers)
    amounts = {
        "the passes of a step": layout.micro_batches * times,
        "sending in a step": 2 * layout.micro_batches * layout.stages * _transfer_us(sent, choices),
        "parameters with their state": graph.state_factor * sum(layer.parameter_bytes for layer in layers),
        "activations of a micro-batch": ceil(share * kept),
        "inputs and outputs of a micro-batch": sent,
        # Shares of whole numbers are products first.
        "samples of a step times costs": share.numerator * max(times, sent, kept) // 2**8,
    }
    wrong = [f"{name} come to {amount}; {LARGEST} is the most" for name, amount in amounts.items() if amount > LARGEST]
    if wrong:
        raise UsageError(*wrong, code="out-of-range")
