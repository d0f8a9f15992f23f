"""Places where a model can be cut, and what lies before each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.planning.partition.prefixes import prefixes_of
from jigsaw_opt.problem.layers import LayerGraph, MeasuredLayer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Sums = NDArray[np.int64]

__all__ = ["CutPositions", "positions_of"]


@dataclass(frozen=True, slots=True)
class CutPositions:
    """Positions where a model can be cut, in order: position 0 has no layer before it, the last one all.

    `layers`: for each position, the layers before it as bits of a number. `forward_us, backward_us, weight_us`: by
    position, the times of the layers before it; the backward pass is whole, and `weight_us` its part for the gradients
    of the weights, None where some layer does not have it apart. `parameter_bytes, activation_bytes, input_bytes`: for
    each position, the sizes of the layers before it; the last, what they read of the model's own input. `sent_bytes`:
    for each position, the outputs before it that are read behind it. `within`: whether a stage may begin at one
    position (row) and end at another (column).
    """

    graph: LayerGraph
    layers: tuple[int, ...]
    forward_us: Sums
    backward_us: Sums
    weight_us: Sums | None
    parameter_bytes: Sums
    activation_bytes: Sums
    input_bytes: Sums
    sent_bytes: Sums
    within: NDArray[np.bool_]

    def names(self, begin: int, end: int) -> tuple[str, ...]:
        """Return the names of the layers between two positions, in the order of the profile.

        `begin, end`: indices of the positions, the earlier one first.
        """
        # Sets of layers are bits of integers, so that a difference is one operation whatever their number.
        own = self.layers[end] & ~self.layers[begin]
        return tuple(layer.name for at, layer in enumerate(self.graph.layers) if own >> at & 1)


def positions_of(graph: LayerGraph) -> CutPositions:
    """Return the positions of a model: between the layers of a chain, behind the prefixes of a graph."""
    import numpy as np

    prefixes = prefixes_of(graph)
    layers = (0, *prefixes.layers)
    size = len(layers)
    within = np.zeros((size, size), dtype=np.bool_)
    within[0, 1:] = True
    within[1:, 1:] = prefixes.within
    # Row: position; column: whether the layer lies before it. Times a column of costs, this gives all sums.
    own = np.array([[prefix >> at & 1 for at in range(len(graph.layers))] for prefix in layers], dtype=np.int64)

    def sums(amount: Callable[[MeasuredLayer], int]) -> Sums:
        found: Sums = own @ np.array([amount(layer) for layer in graph.layers], dtype=np.int64)
        return found

    apart = all(layer.weight_us is not None for layer in graph.layers)
    return CutPositions(
        graph,
        layers,
        sums(lambda layer: layer.forward_us),
        sums(lambda layer: layer.backward_us),
        sums(lambda layer: layer.weight_us or 0) if apart else None,
        sums(lambda layer: layer.parameter_bytes),
        sums(lambda layer: layer.activation_bytes),
        sums(lambda layer: layer.input_bytes or 0),
        np.concatenate([[0], prefixes.crossing_bytes]).astype(np.int64),
        within,
    )
