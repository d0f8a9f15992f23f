"""What a measured profile holds, and the model of an instance that it makes.

What a plan needs is how long a block at each level lasts, so the model's times add up to the measured blocks
(specification: block): ``backward_us`` of a segment is what a block takes longer when its level takes the segment in,
and ``forward_us`` is the rest. The times of the segments one by one share out the shallowest block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from jigsaw_opt.executor.devices import Spread, isotonic
from jigsaw_opt.executor.partial.noise import NoiseEstimate
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer, chain_edges
from jigsaw_opt.problem.model import Model, Segment

_WIDE = 0.2
"""Interquartile range over the median above which times differ much."""


def is_wide(times: Spread) -> bool:
    """Return whether measurements differ too much for their median to be relied on."""
    return times.iqr > _WIDE * times.median


@dataclass(frozen=True, slots=True)
class SegmentProfile:
    """The costs of one segment.

    `backward`: backward pass, and what the graph adds to the forward pass: both of the two that follow.
    `input_gradients`: what the backward pass takes without the gradients of the segment's parameters.
    `weight_gradients`: what the gradients of its parameters add. `step_us`: its share of the optimiser's step, by
    parameters. `output_bytes`: what it or a segment before it has made and a later one reads; None for the last one, or
    where it is not known. `modules`: paths of the modules that it holds as a whole.
    """

    name: str
    forward: Spread
    backward: Spread
    input_gradients: Spread
    weight_gradients: Spread
    step_us: float
    parameter_bytes: int
    activation_bytes: int
    output_bytes: int | None = None
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LevelProfile:
    """The costs of a block at one level.

    `level`: number of the level, from 1. `block`: time of a block at this level. `memory_bytes`: on CUDA the most that
    was allocated at once beyond what the worker holds between blocks; on a CPU the bytes saved for the backward pass.
    """

    level: int
    block: Spread
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A measured model.

    `segments`: profiles of the segments from the input to the output. `levels`: level ``d`` takes in the last ``d``
    segments. `state_bytes`: weights and buffers, gradients and optimiser state, which a worker holds between blocks.
    `batch`: samples of a batch; None where its tensors do not agree on how many they are. `input_bytes`: bytes of the
    inputs of a batch; None where they were not measured. `noise`: gradient noise by bucket; None if not measured.
    """

    segments: tuple[SegmentProfile, ...]
    levels: tuple[LevelProfile, ...]
    state_bytes: int
    gpu_type: str = "cpu"
    batch: int | None = None
    input_bytes: int | None = None
    noise: NoiseEstimate | None = None

    @property
    def wide_levels(self) -> tuple[int, ...]:
        """Levels whose block times have an interquartile range of over 20 % of their median."""
        return tuple(level.level for level in self.levels if is_wide(level.block))

    @property
    def parts_us(self) -> tuple[float, ...]:
        """By level, what the segments take one by one: steps, forward passes, and backward passes of the suffix."""
        ahead = sum(s.step_us + s.forward.median for s in self.segments)
        return tuple(ahead + back for back in accumulate(s.backward.median for s in reversed(self.segments)))

    def model(self, gpu_type: str | None = None, executor: Mapping[str, Any] | None = None) -> Model:
        """Return the model for an instance, whose blocks last as measured.

        `executor`: how the executor builds the model; None where it cannot.
        """
        gpu_type = gpu_type or self.gpu_type
        segments = tuple(
            Segment(s.name, {gpu_type: forward}, {gpu_type: backward}, s.parameter_bytes, s.activation_bytes)
            for s, forward, backward in zip(self.segments, *self._times(), strict=True)
        )
        efficiency = self.noise.rounded() if self.noise is not None and self.noise.is_known else None
        return Model(segments, state_factor=self.state_factor, executor=executor, efficiency=efficiency)

    @property
    def state_factor(self) -> int:
        """Bytes of state for each byte of trained parameters, at least 1."""
        trained = max(1, sum(s.parameter_bytes for s in self.segments))
        # A hundredth is left aside: buffers of normalisation are no reason to count all parameters once more.
        return max(1, ceil_div(100 * self.state_bytes, 101 * trained))

    def layers(self, gpu_type: str | None = None) -> LayerGraph:
        """Return the layer profile of one pass over the segments, without the optimiser's step."""
        layers = []
        for s in self.segments:
            backward = round(s.backward.median)
            weights = min(backward, round(s.weight_gradients.median))
            sizes = (s.parameter_bytes, s.activation_bytes, weights, s.output_bytes)
            layers.append(MeasuredLayer(s.name, round(s.forward.median), backward, *sizes, s.modules))
        layers[0] = replace(layers[0], input_bytes=self.input_bytes)
        edges = chain_edges(len(layers))
        return LayerGraph(tuple(layers), edges, self.batch, self.state_factor, gpu_type or self.gpu_type)

    def _times(self) -> tuple[list[int], list[int]]:
        """Return integer times ``forward_us`` and ``backward_us`` of the segments."""
        # A deeper block is never faster; where noise says so, both count as equal.
        blocks = [max(1, round(us)) for us in isotonic([level.block.median for level in self.levels])]
        last = min(round(self.segments[-1].backward.median), blocks[0] - 1)
        backward = [last, *(deep - shallow for shallow, deep in pairwise(blocks))]
        shares = [s.step_us + s.forward.median for s in self.segments]
        done = [round((blocks[0] - last) * part / sum(shares)) for part in accumulate(shares, initial=0.0)]
        return [high - low for low, high in pairwise(done)], backward[::-1]
