"""From measured layers to the segments of a model."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem import Model, Segment
from jigsaw_opt.problem.layers import MeasuredLayer

__all__ = ["MOST_LINES", "Group", "model_of"]

MOST_LINES = 10_000
"""Of a profile: layers are merged in a time that grows with the square of their number."""


Group = list[MeasuredLayer]


def model_of(groups: Sequence[Group], gpu_type: str, segments: int | None) -> Model:
    """The model of `groups` of layers, from input to output, that must not be cut further.

    Parameters
    ----------
    groups
        Layers between neighbouring places where the backward pass may stop.
    gpu_type
        The type of GPU that the times were measured on.
    segments
        The greatest number of segments; None for one a group.

    Raises
    ------
    UsageError
        If `segments` is below 1.
    """
    if segments is not None and segments < 1:
        raise UsageError(f"a model needs at least 1 segment, not {segments}")
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
    first, last = group[0].name, group[-1].name
    return Segment(
        name=first if len(group) == 1 else f"{first}..{last}",
        forward_us={gpu_type: sum(layer.forward_us for layer in group)},
        backward_us={gpu_type: sum(layer.backward_us for layer in group)},
        parameter_bytes=sum(layer.parameter_bytes for layer in group),
        activation_bytes=sum(layer.activation_bytes for layer in group),
    )
