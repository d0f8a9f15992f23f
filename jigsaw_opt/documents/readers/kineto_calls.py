"""Calls of one name in a pass of a trace: each is a layer of its own, numbered by its place in the forward pass."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from jigsaw_opt.documents.readers.kineto_events import Trace, TraceSpan
from jigsaw_opt.documents.readers.kineto_layers import node_around

__all__ = ["calls_of_names", "numbered_layers", "without_weights"]


def calls_of_names(trace: Trace, chosen: Mapping[TraceSpan, str]) -> dict[TraceSpan, int]:
    """Return the number of each span among those of its name in its forward pass, from 1.

    A span that a node runs again has the number of the call that it repeats. The node's operation tells which one: what
    is computed again ends with the last layer that began before this operation ended.
    """
    nodes = [span.start for span in trace.spans if span.is_node]
    order = list(chosen)
    starts = [span.start for span in order]
    numbers: dict[TraceSpan, int] = {}
    again: dict[TraceSpan, list[TraceSpan]] = defaultdict(list)
    counts: Counter[str] = Counter()
    nodes_before = 0
    for span in order:
        if node := node_around(span):
            again[node].append(span)
            continue
        if (before := bisect_left(nodes, span.start)) > nodes_before:
            nodes_before = before
            counts.clear()
        counts[chosen[span]] += 1
        numbers[span] = counts[chosen[span]]
    for node, spans in again.items():
        maker = trace.makers.get(node)
        earlier = iter(reversed(order[: bisect_left(starts, node.start if maker is None else maker.end)]))
        for span in reversed(spans):
            numbers[span] = next((numbers[one] for one in earlier if chosen[one] == chosen[span]), 1)
    return numbers


def numbered_layers(
    chosen: Mapping[TraceSpan, str], numbers: Mapping[TraceSpan, int]
) -> tuple[dict[TraceSpan, str], dict[str, tuple[str, ...]]]:
    """Return the layers with a number behind each name that a pass calls several times, and the calls of such names."""
    most: Counter[str] = Counter()
    for span, name in chosen.items():
        most[name] = max(most[name], numbers[span])
    calls = {name: tuple(f"{name}.{k}" for k in range(1, n + 1)) for name, n in most.items() if n > 1}
    layers = {span: calls[name][numbers[span] - 1] if name in calls else name for span, name in chosen.items()}
    return layers, calls


def without_weights(
    calls: Mapping[str, Collection[str]], parameter_bytes: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield a call without parameters, and one of the same name that has some: they may share their weights.

    `calls`: by name, the layers that its calls are.
    """
    for names in calls.values():
        sized = next((name for name in names if parameter_bytes[name]), None)
        for name in names:
            if sized is not None and not parameter_bytes[name]:
                yield name, sized
