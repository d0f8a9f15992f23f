"""What is told of the layers of a PyTorch profiler trace beside their figures."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

from jigsaw_opt.documents.readers.kineto_steps import ProfiledStep
from jigsaw_opt.problem.measured.layers import MeasuredLayer
from jigsaw_opt.problem.rules.report import quoted
from jigsaw_opt.text import counted

__all__ = ["Tell", "tell_scatter", "tell_without_gradient"]

Tell = Callable[[str], None]
"""Takes what is said of a trace that can be read, in one line."""


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
                f"state all of the layer's with --parameters {shlex.quote(f'{name}=BYTES')}"
            )
