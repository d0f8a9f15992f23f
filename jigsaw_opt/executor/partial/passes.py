"""The passes of a wrapped module: a forward pass, and a backward pass under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn
from torch.utils.hooks import RemovableHandle

from jigsaw_opt.executor.partial.averaging import GradientAverage

__all__ = ["BackwardPass", "ForwardPass"]


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """What a forward pass has fixed for the backward pass that follows.

    Parameters
    ----------
    iteration
        To which it belongs.
    levels
        Of all workers.
    beyond
        Trained parameters that this worker's level does not reach.
    synchronise
        Whether gradients are averaged after it.
    """

    iteration: int
    levels: tuple[int, ...]
    beyond: list[nn.Parameter]
    synchronise: bool


@dataclass
class BackwardPass:
    """A backward pass under way.

    Parameters
    ----------
    forward
        The pass before it.
    average
        Its exchange; None before the first gradient, and where there is none.
    reached
        Whether some gradient has arrived.
    frozen
        What is frozen until it ends.
    watch
        What sees that no optimiser steps meanwhile.
    end
        Called when it has ended, well or not.
    """

    forward: ForwardPass
    average: GradientAverage | None = None
    reached: bool = False
    frozen: list[nn.Parameter] = field(default_factory=list)
    watch: RemovableHandle | None = None
    end: Callable[[], object] = field(default=lambda: None)
