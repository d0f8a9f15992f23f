"""Positions at which a model can be cut: what may lie before a cut of a pipeline.

What lies before a position holds with each layer all that it reads from. From the first layer on, each step adds one
that reads from what is there, with what it reads from besides. PipeDream calls these sets by their antichains
(Narayanan et al., SOSP'19; the released optimiser's graphs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.problem.measured.layers import LayerGraph, MeasuredLayer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Amounts = NDArray[np.float64]

_MOST_POSITIONS = 4000
"""The dynamic program takes their square."""


@dataclass(frozen=True, slots=True)
class CutPositions:
    """Positions where a model can be cut, in order: position 0 has no layer before it, the last one all.

    `layers`: for each position, the layers before it as bits of a number. `before`: 1 where a layer (column) lies
    before a position (row). `sent_bytes`: for each position, the outputs before it that are read behind it.
    `released_sent_bytes`: the same as the released optimiser counts it: also the outputs of the last layers before it,
    and of layers that some last layer does not know all readers of. `within`: whether a stage may begin at one position
    (row) and end at another (column).
    """

    graph: LayerGraph
    layers: tuple[int, ...]
    before: Amounts
    sent_bytes: Amounts
    released_sent_bytes: Amounts
    within: NDArray[np.bool_]

    def between(self, amount: Callable[[MeasuredLayer], int], unit: float = 1) -> Amounts:
        """Return by begin (row) and end (column) of a stage what its layers have in all, in some unit."""
        import numpy as np

        sums = self.before @ np.array([amount(layer) for layer in self.graph.layers], dtype=np.float64) / unit
        found: Amounts = sums[None, :] - sums[:, None]
        return found

    def names(self, begin: int, end: int) -> tuple[str, ...]:
        """Return the names of the layers between two positions, in the order of the profile.

        `begin, end`: indices of the positions, the earlier one first.
        """
        # Sets of layers are bits of integers, so that a difference is one operation whatever their number.
        own = self.layers[end] & ~self.layers[begin]
        return tuple(layer.name for at, layer in enumerate(self.graph.layers) if own >> at & 1)


def positions_of(graph: LayerGraph) -> CutPositions:
    """Return the positions of a model: between the layers of a chain, where each branch may be cut in a graph."""
    import numpy as np

    count, readers, below = len(graph.layers), _readers(graph), _below(graph)
    layers = (0, *sorted(_reachable(readers, below), key=int.bit_count))
    if layers[-1].bit_count() < count:
        raise UsageError(
            "the layers are in several parts that no edge joins; each part is a model of its own", code="unsupported"
        )
    packed = _packed(layers, count)
    # A position is before another where the layers before it are: steps lead from each set to every larger one.
    within = np.array([~(own & ~packed).any(axis=1) for own in packed])
    np.fill_diagonal(within, False)
    outputs = np.array([layer.sent_bytes for layer in graph.layers], dtype=np.float64)
    crossing = [_crossing(own, readers) for own in layers], [_released_crossing(own, readers, below) for own in layers]
    sent, released = (_unpacked(_packed(sets, count), count) @ outputs for sets in crossing)
    return CutPositions(graph, layers, _unpacked(packed, count), sent, released, within)


def _packed(sets: Sequence[int], layers: int) -> NDArray[np.uint64]:
    """Return sets of layers as rows of bits."""
    import numpy as np

    words = layers // 64 + 1
    data = b"".join(own.to_bytes(8 * words, "little") for own in sets)
    return np.frombuffer(data, dtype=np.uint64).reshape(len(sets), words)


def _unpacked(sets: NDArray[np.uint64], layers: int) -> Amounts:
    """Return a matrix with 1 where a set of layers (row) has a layer (column), else 0."""
    import numpy as np

    return np.unpackbits(sets.view(np.uint8), axis=1, count=layers, bitorder="little").astype(np.float64)


def _bits(layers: int) -> Iterator[int]:
    """Yield numbers of the layers of a set."""
    while layers:
        lowest = layers & -layers
        yield lowest.bit_length() - 1
        layers ^= lowest


def _readers(graph: LayerGraph) -> list[int]:
    """Return for each layer those that read its output."""
    readers = [0] * len(graph.layers)
    for tail, head in graph.edges:
        readers[tail] |= 1 << head
    return readers


def _below(graph: LayerGraph) -> list[int]:
    """Return for each layer all that it reads from, directly or not."""
    before: dict[int, list[int]] = {at: [] for at in range(len(graph.layers))}
    for tail, head in graph.edges:
        before[head].append(tail)
    below = [0] * len(graph.layers)
    for at in TopologicalSorter(before).static_order():
        for tail in before[at]:
            below[at] |= below[tail] | 1 << tail
    return below


def _reachable(readers: Sequence[int], below: Sequence[int]) -> list[int]:
    """Return the sets of layers that steps lead to, in the order of their discovery."""
    first = next(1 << at for at, own in enumerate(below) if own == 0)
    read_by, found = {first: _read_by(first, readers)}, [first]
    for own in found:  # the list grows while it is read
        check_deadline()
        longer = {own | below[to] | 1 << to for to in _bits(read_by[own] & ~own)}
        for other in sorted(longer - read_by.keys()):
            read_by[other] = read_by[own] | _read_by(other & ~own, readers)
            found.append(other)
        if len(found) > _MOST_POSITIONS:
            raise UsageError(
                f"the graph can be cut in more than {_MOST_POSITIONS} ways; merge branches of it first",
                code="too-large",
            )
    return found


def _read_by(layers: int, readers: Sequence[int]) -> int:
    """Return layers that read from some of a set."""
    found = 0
    for at in _bits(layers):
        found |= readers[at]
    return found


def _crossing(own: int, readers: Sequence[int]) -> int:
    """Return layers of a set whose output is read behind it."""
    return sum(1 << at for at in _bits(own) if readers[at] & ~own)


def _released_crossing(own: int, readers: Sequence[int], below: Sequence[int]) -> int:
    """Return layers whose output the released optimiser counts as sent: those of its augmented antichain."""
    last = [at for at in _bits(own) if not readers[at] & own]
    counted = sum(1 << at for at in last)
    for end in last:
        known = below[end] | 1 << end
        counted |= sum(1 << at for at in _bits(below[end] & ~counted) if readers[at] & ~known)
    return counted
