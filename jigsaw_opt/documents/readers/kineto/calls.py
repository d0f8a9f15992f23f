"""Calls of one name in a pass of a trace: each is a layer of its own, numbered by its place in the forward pass."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from jigsaw_opt.documents.readers.kineto.events import Trace, TraceSpan
from jigsaw_opt.documents.readers.kineto.layers import node_around
from jigsaw_opt.documents.readers.kineto.steps import ProfiledStep
from jigsaw_opt.problem.measured.layers import MeasuredLayer
from jigsaw_opt.problem.rules.report import quoted
from jigsaw_opt.text import Tell, counted


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


def tell_scatter(layers: Sequence[MeasuredLayer], steps: int, source: str, tell: Tell) -> None:
    """Tell from where to where the times of all layers go over the steps, and which layer has the widest range.

    `layers`: layers with the ranges of their times, or without them, where nothing is told.
    """
    pairs = [(one.forward_range_us, one.backward_range_us) for one in layers]
    ranges = [(f[0] + b[0], f[1] + b[1]) for f, b in pairs if f is not None and b is not None]
    if not ranges:
        return
    total, (low, high) = sum(one.time_us for one in layers), map(sum, zip(*ranges, strict=True))
    widest, ends = max(zip(layers, ranges, strict=True), key=lambda one: one[1][1] - one[1][0])
    tell(
        f"{source}times are medians of {steps} steps: {total} us in all layers, {low} to {high} us where each takes "
        f"its least or greatest time; layer {quoted(widest.name)} scatters most, {ends[0]} to {ends[1]} us"
    )


def tell_without_gradient(step: ProfiledStep, names: Iterable[str], source: str, tell: Tell) -> None:
    """Tell which layers have parameters that got no gradient, so that their bytes are not known.

    `names`: names of the layers whose bytes nobody has stated.
    """
    for name in names:
        if count := step.gradients_without_value(name):
            tell(
                f"{source}: {counted(count, 'parameter')} of layer {quoted(name)} got no gradient and counts 0 bytes: "
                f"state all of the layer's with --parameter-bytes {shlex.quote(f'{name}=BYTES')}"
            )
