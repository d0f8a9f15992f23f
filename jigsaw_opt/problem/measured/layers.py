"""Layers of a model as they were measured, and which of them read the output of which others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class MeasuredLayer:
    """One measured layer; times in microseconds, sizes in bytes.

    `name`: its name; the path of its module where that is known. `backward_us`: time of its whole backward pass.
    `activation_bytes`: bytes that its backward pass needs. `weight_us`: the part of `backward_us` that goes into the
    gradients of the weights; None where it was not measured apart. `output_bytes`: bytes that the next layer reads,
    which are sent where a stage ends with this layer; None where only `activation_bytes` is known. `modules`: paths of
    the modules that it is made of; empty where its name is the path of one, or none is known. `forward_range_us,
    backward_range_us`: the least and the greatest time of each pass over the measured iterations; None where that is
    not known. `input_bytes`: bytes of the model's own input that it reads; None where it reads none, or that is not
    known.
    """

    name: str
    forward_us: int
    backward_us: int
    parameter_bytes: int
    activation_bytes: int
    weight_us: int | None = None
    output_bytes: int | None = None
    modules: tuple[str, ...] = ()
    forward_range_us: tuple[int, int] | None = None
    backward_range_us: tuple[int, int] | None = None
    input_bytes: int | None = None

    @property
    def time_us(self) -> int:
        """Forward and backward time, in microseconds."""
        return self.forward_us + self.backward_us

    @property
    def sent_bytes(self) -> int:
        """Bytes that are sent where a stage ends with this layer; those of its activations where none are stated."""
        return self.activation_bytes if self.output_bytes is None else self.output_bytes

    def at_end(self, end: int) -> MeasuredLayer:
        """Return the layer with the least times of its ranges (end 0), or with the greatest (end 1)."""
        forward = self.forward_us if self.forward_range_us is None else self.forward_range_us[end]
        backward = self.backward_us if self.backward_range_us is None else self.backward_range_us[end]
        weight = None if self.weight_us is None else min(self.weight_us, backward)
        return replace(self, forward_us=forward, backward_us=backward, weight_us=weight)


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """Layers, and which of them read the output of which others.

    `layers`: the layers in the order of the profile. `edges`: numbers of two layers, the second of which reads the
    output of the first; without a cycle. `batch`: samples of the measured micro-batch; None where that is not known.
    `state_factor`: bytes held for weights, gradients and optimiser state per byte of parameters, as a `Model` has it; 1
    where that is not known. `gpu_type`: the type of GPU that the times hold for; None where that is not known.
    """

    layers: tuple[MeasuredLayer, ...]
    edges: tuple[tuple[int, int], ...]
    batch: int | None = None
    state_factor: int = 1
    gpu_type: str | None = None

    @property
    def is_chain(self) -> bool:
        """Whether each layer reads the one before it and no other."""
        return set(self.edges) == set(chain_edges(len(self.layers)))

    @property
    def ends(self) -> tuple[LayerGraph, LayerGraph] | None:
        """The graph with the least times of all ranges, and with the greatest; None where no layer has a range."""
        if all(layer.forward_range_us is None and layer.backward_range_us is None for layer in self.layers):
            return None
        low, high = (replace(self, layers=tuple(layer.at_end(end) for layer in self.layers)) for end in (0, 1))
        return low, high

    @property
    def knows_input(self) -> bool:
        """Whether each layer that reads no other one states how many bytes of the model's input it reads."""
        readers = {head for _, head in self.edges}
        return all(layer.input_bytes is not None for at, layer in enumerate(self.layers) if at not in readers)


def input_bytes_of(layers: Iterable[MeasuredLayer]) -> int | None:
    """Return bytes of the model's own input that some layers read; None where none of them states any."""
    stated = [layer.input_bytes for layer in layers if layer.input_bytes is not None]
    return sum(stated) if stated else None


def chain_edges(layers: int) -> tuple[tuple[int, int], ...]:
    """Return the edges of so many layers each of which reads the one before it."""
    return tuple(pairwise(range(layers)))


def parts_of(layers: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the numbers of so many layers by the parts that no edge joins, each part in order."""
    part = [[at] for at in range(layers)]
    for tail, head in edges:
        if part[tail] is not part[head]:
            # The smaller part joins the larger one, so each layer changes its part at most log2 of their number times.
            small, large = sorted((part[tail], part[head]), key=len)
            large += small
            for at in small:
                part[at] = large
    return sorted(sorted(own) for at, own in enumerate(part) if own[0] == at)
