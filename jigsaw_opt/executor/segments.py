"""A model in segments whose backward pass may stop at any level by SPB (specification: models).

The prefix below the level runs without a graph, so it stores no activations, and as the first tensor of the suffix
needs no gradient, the backward pass stops there, without even the gradient of the suffix's input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.zoo.network import Batch

__all__ = ["SegmentedModel", "frozen", "require_scalar"]


class SegmentedModel(nn.Module):
    """Segments in a row with a loss.

    A parameter that several segments share (an embedding's table that the output uses too, a module that stands in
    the row twice) is one parameter. It belongs to the segment nearest the input: only a backward pass that reaches it
    has its whole gradient, so shallower ones leave it out. The loss is part of the last segment.

    Parameters
    ----------
    names, segments
        Name and module of each segment, from the input to the output.
    loss
        Mean loss over a batch, from the last segment's output and the targets.
    levels
        Level ``d`` (1-based) backpropagates the last ``levels[d-1]`` segments; rises strictly to their number.

    Attributes
    ----------
    borrowed : tuple of dict
        For each segment its trained parameters that belong to one nearer the input, and the index of that one.
    """

    def __init__(
        self,
        names: Sequence[str],
        segments: Sequence[nn.Module],
        loss: Callable[[Any, Any], Tensor],
        levels: Sequence[int],
    ) -> None:
        super().__init__()
        self.names, self.levels = tuple(names), tuple(levels)
        self.segments = nn.ModuleList(segments)
        self.loss = loss
        self.borrowed = self._borrowed()
        self._left_out = tuple(self._unreached(level) for level in range(1, self.depth + 1))

    @property
    def depth(self) -> int:
        """Number of levels, ``D``."""
        return len(self.levels)

    def cut(self, level: int) -> int:
        """Number of segments that a backward pass to `level` leaves out; `level` 0 leaves out all."""
        return len(self.segments) - (self.levels[level - 1] if level else 0)

    def own_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Trained parameters of each segment, a shared one only in the first."""
        seen: set[nn.Parameter] = set()
        owned = []
        for parameters in self._held():
            own = tuple(p for p in parameters if p.requires_grad and p not in seen)
            seen.update(own)
            owned.append(own)
        return tuple(owned)

    def bucket_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Trained parameters of buckets 1 to D, bucket 1 at the output side."""
        owned = self.own_parameters()
        bounds = [self.cut(level) for level in range(self.depth + 1)]
        return tuple(tuple(p for own in owned[low:high] for p in own) for high, low in pairwise(bounds))

    def _held(self) -> Iterator[Iterator[nn.Parameter]]:
        """Yield the parameters of each segment, those of the loss with the last one."""
        *others, last = self.segments
        yield from (segment.parameters() for segment in others)
        yield chain(last.parameters(), self.loss.parameters() if isinstance(self.loss, nn.Module) else ())

    def _borrowed(self) -> tuple[dict[nn.Parameter, int], ...]:
        owner = {p: index for index, own in enumerate(self.own_parameters()) for p in own}
        return tuple(
            {p: owner[p] for p in parameters if owner.get(p, index) < index}
            for index, parameters in enumerate(self._held())
        )

    def _unreached(self, level: int) -> tuple[nn.Parameter, ...]:
        """Borrowed parameters of the last segments whose owners `level` leaves out."""
        cut = self.cut(level)
        return tuple({p: None for lent in self.borrowed[cut:] for p, owner in lent.items() if owner < cut})

    def forward(self, inputs: Any) -> Any:
        """Output of the last segment."""
        for segment in self.segments:
            inputs = segment(inputs)
        return inputs

    def partial_loss(self, batch: Batch, level: int, enter: Callable[[int], None] | None = None) -> Tensor:
        """Mean loss of `batch`, with a graph that reaches down to `level` and no further.

        Parameters
        ----------
        batch
            Inputs and targets.
        level
            1 to `depth`.
        enter
            None, or called with the index of each segment before it runs.
        """
        values, targets = batch
        cut = self.cut(level)
        with frozen(self._left_out[level - 1]):
            for index, segment in enumerate(self.segments):
                if enter is not None:
                    enter(index)
                with torch.set_grad_enabled(index >= cut):
                    values = segment(values)
            return self.scalar_loss(values, targets)

    def scalar_loss(self, values: Any, targets: Any) -> Tensor:
        """Return the loss of the last segment's output.

        Raises
        ------
        UsageError
            It is no tensor of one number.
        """
        return require_scalar(self.loss(values, targets))

    def backpropagate(self, batch: Batch, level: int) -> Tensor:
        """Forward pass and backward pass to `level`; gradients add up in the parameters.

        Returns the loss, detached.
        """
        loss = self.partial_loss(batch, level)
        if loss.requires_grad:  # a suffix without parameters has nothing to backpropagate
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def require_scalar(loss: object) -> Tensor:
    """Return `loss`; raise `UsageError` if it is no tensor of one number."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shown = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise UsageError(f"a loss is one number, the mean over the batch, not {shown}")
    return loss


@contextmanager
def frozen(parameters: Collection[nn.Parameter]) -> Iterator[None]:
    """Keep `parameters` out of a graph that is built meanwhile."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
