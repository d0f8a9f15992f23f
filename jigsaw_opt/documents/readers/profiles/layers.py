"""Merge measured layers into the segments of a model."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.errors import out_of_range
from jigsaw_opt.problem import Model, Segment
from jigsaw_opt.problem.measured.layers import MeasuredLayer, input_bytes_of

MOST_LINES = 10_000
"""Of a profile: layers are merged in a time that grows with the square of their number."""


Group = list[MeasuredLayer]


def model_of(groups: Sequence[Group], gpu_type: str, segments: int | None) -> Model:
    """Build the model of `groups` of layers, from input to output, none of which may be divided.

    `segments`: the greatest number of segments; None for one a group.
    """
    if segments is not None and segments < 1:
        raise out_of_range("segments", f"a model needs at least 1 segment, not {segments}")
    return Model(tuple(_segment(group, gpu_type) for group in _merged(groups, segments or len(groups))))


def _merged(groups: Sequence[Group], most: int) -> list[Group]:
    """Merge the two neighbours that take least time together until at most `most` groups are left.

    This keeps the segments of similar time, and as many of them as are allowed.
    """
    merged = list(groups)
    times = [sum(layer.time_us for layer in group) for group in merged]
    while len(merged) > most:
        k = min(range(len(merged) - 1), key=lambda i: times[i] + times[i + 1])
        merged[k : k + 2] = [merged[k] + merged[k + 1]]
        times[k : k + 2] = [times[k] + times[k + 1]]
    return merged


def _segment(group: Group, gpu_type: str) -> Segment:
    whole = one_layer(group)
    times_us = {gpu_type: whole.forward_us}, {gpu_type: whole.backward_us}
    return Segment(whole.name, *times_us, whole.parameter_bytes, whole.activation_bytes)


def one_layer(group: Sequence[MeasuredLayer]) -> MeasuredLayer:
    """Return neighbouring layers, at least one, as one layer that sends what the last of them sends."""
    first, last = group[0], group[-1]
    if first is last:
        return first
    weights = [layer.weight_us for layer in group if layer.weight_us is not None]
    return MeasuredLayer(
        f"{first.name}..{last.name}",
        sum(layer.forward_us for layer in group),
        sum(layer.backward_us for layer in group),
        sum(layer.parameter_bytes for layer in group),
        sum(layer.activation_bytes for layer in group),
        sum(weights) if len(weights) == len(group) else None,
        last.output_bytes,
        tuple(path for layer in group for path in layer.modules or (layer.name,)),
        _sum_of([layer.forward_range_us for layer in group]),
        _sum_of([layer.backward_range_us for layer in group]),
        input_bytes_of(group),
    )


def _sum_of(ranges: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """Return the least and the greatest sum of times of which each has its range; None where one has none."""
    known = [one for one in ranges if one is not None]
    return (sum(low for low, _ in known), sum(high for _, high in known)) if len(known) == len(ranges) else None
