"""Prefixes of a graph of layers: what may lie before a cut of a pipeline.

A prefix holds with each layer all that it reads from. From the first layer on, each step adds one that reads from the
prefix, with what it reads from besides. PipeDream calls them by their antichains (Narayanan et al., SOSP'19; the
released optimiser's graphs).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.problem.measured.layers import LayerGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_PREFIXES = 4000
"""The dynamic program takes their square."""


@dataclass(frozen=True, slots=True)
class Prefixes:
    """All prefixes that a step by layers reaches, smaller ones first; the last one has all layers.

    `layers`: for each prefix, its layers as bits of a number. `compute_s`: for each prefix, seconds of its forward and
    backward passes. `parameter_bytes, activation_bytes`: for each prefix, what its layers have in all.
    `crossing_bytes`: for each prefix, outputs that are read behind it. `released_crossing_bytes`: the same as the
    released optimiser counts it: also the outputs of its last layers, and of layers that some last layer does not know
    all readers of. `within`: whether one prefix (row) can become another (column). `state_factor`: bytes held for each
    byte of parameters, one version of these included.
    """

    layers: tuple[int, ...]
    compute_s: NDArray[np.float64]
    parameter_bytes: NDArray[np.float64]
    activation_bytes: NDArray[np.float64]
    crossing_bytes: NDArray[np.float64]
    released_crossing_bytes: NDArray[np.float64]
    within: NDArray[np.bool_]
    state_factor: int = 1


def prefixes_of(graph: LayerGraph) -> Prefixes:
    """Return the prefixes of a graph."""
    import numpy as np

    readers, below = _readers(graph), _below(graph)
    found, steps = _reachable(readers, below)
    order = sorted(range(len(found)), key=lambda at: (found[at].bit_count(), at))
    place = {at: new for new, at in enumerate(order)}
    within = np.zeros((len(order), len(order)), dtype=np.bool_)
    # In order of size: the prefixes within one are complete before they are passed on to longer ones.
    for at in order:
        for following in steps[at]:
            within[:, place[following]] |= within[:, place[at]]
            within[place[at], place[following]] = True
    layers = tuple(found[at] for at in order)
    if layers[-1].bit_count() < len(graph.layers):
        raise UsageError(
            "the layers are in several parts that no edge joins; each part is a model of its own", code="unsupported"
        )

    own = membership(layers, len(graph.layers))
    kept = np.array([layer.activation_bytes for layer in graph.layers], dtype=np.float64)
    outputs = np.array([layer.sent_bytes for layer in graph.layers], dtype=np.float64)
    crossing = membership([_crossing(prefix, readers) for prefix in layers], len(graph.layers))
    released = membership([_released_crossing(prefix, readers, below) for prefix in layers], len(graph.layers))
    return Prefixes(
        layers,
        own @ np.array([layer.time_us for layer in graph.layers], dtype=np.float64) / 1e6,
        own @ np.array([layer.parameter_bytes for layer in graph.layers], dtype=np.float64),
        own @ kept,
        crossing @ outputs,
        released @ outputs,
        within,
        graph.state_factor,
    )


def membership(sets: Sequence[int], layers: int) -> NDArray[np.float64]:
    """Return a matrix with 1 where a set of layers (row) has a layer (column), else 0."""
    import numpy as np

    size = layers // 8 + 1
    packed = np.frombuffer(b"".join(own.to_bytes(size, "little") for own in sets), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(sets), size), axis=1, count=layers, bitorder="little")
    return bits.astype(np.float64)


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


def _reachable(readers: Sequence[int], below: Sequence[int]) -> tuple[list[int], list[set[int]]]:
    """Return prefixes in the order of their discovery, and for each the numbers of those one step further."""
    first = next(1 << at for at, own in enumerate(below) if own == 0)
    number, found, steps = {first: 0}, [first], list[set[int]]()
    read_by = [_read_by(first, readers)]
    queue = deque(found)
    while queue:
        check_deadline()
        prefix = queue.popleft()
        at = number[prefix]
        longer = {prefix | below[to] | 1 << to for to in _bits(read_by[at] & ~prefix)}
        for other in sorted(longer - number.keys()):
            number[other] = len(found)
            found.append(other)
            read_by.append(read_by[at] | _read_by(other & ~prefix, readers))
            queue.append(other)
        if len(found) > _MOST_PREFIXES:
            raise UsageError(
                f"the graph can be cut in more than {_MOST_PREFIXES} ways; merge branches of it first", code="too-large"
            )
        steps.append({number[other] for other in longer})
    return found, steps


def _read_by(layers: int, readers: Sequence[int]) -> int:
    """Return layers that read from some of a set."""
    found = 0
    for at in _bits(layers):
        found |= readers[at]
    return found


def _crossing(prefix: int, readers: Sequence[int]) -> int:
    """Return layers whose output is read behind a prefix."""
    return sum(1 << at for at in _bits(prefix) if readers[at] & ~prefix)


def _released_crossing(prefix: int, readers: Sequence[int], below: Sequence[int]) -> int:
    """Return layers whose output the released optimiser counts as sent: those of its augmented antichain."""
    last = [at for at in _bits(prefix) if not readers[at] & prefix]
    counted = sum(1 << at for at in last)
    for end in last:
        known = below[end] | 1 << end
        counted |= sum(1 << at for at in _bits(below[end] & ~counted) if readers[at] & ~known)
    return counted
