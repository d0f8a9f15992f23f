"""A model in segments whose backward pass may stop at any level by SPB (specification: models).

The prefix below the level runs without a graph, so it stores no activations, and as the first tensor of the suffix
needs no gradient, the backward pass stops there, without even the gradient of the suffix's input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from jigsaw_opt.executor.zoo.network import Batch

__all__ = ["SegmentedModel", "frozen"]


class SegmentedModel(nn.Module):
    """Segments in a row with a loss.

    A parameter that several segments share (an embedding's table that the output uses too) belongs to the one
    nearest the input: only a backward pass that reaches it has its whole gradient, so shallower ones leave it out.

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
        loss: Callable[[Tensor, Tensor], Tensor],
        levels: Sequence[int],
    ) -> None:
        super().__init__()
        self.names, self.levels, self.loss = tuple(names), tuple(levels), loss
        self.segments = nn.ModuleList(segments)
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
        for segment in self.segments:
            own = tuple(p for p in segment.parameters() if p.requires_grad and p not in seen)
            seen.update(own)
            owned.append(own)
        return tuple(owned)

    def bucket_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Trained parameters of buckets 1 to D, bucket 1 at the output side."""
        owned = self.own_parameters()
        bounds = [self.cut(level) for level in range(self.depth + 1)]
        return tuple(tuple(p for own in owned[low:high] for p in own) for high, low in pairwise(bounds))

    def _borrowed(self) -> tuple[dict[nn.Parameter, int], ...]:
        owner = {p: index for index, own in enumerate(self.own_parameters()) for p in own}
        return tuple(
            {p: owner[p] for p in segment.parameters() if owner.get(p, index) < index}
            for index, segment in enumerate(self.segments)
        )

    def _unreached(self, level: int) -> tuple[nn.Parameter, ...]:
        """Borrowed parameters of the last segments whose owners `level` leaves out."""
        cut = self.cut(level)
        return tuple({p: None for lent in self.borrowed[cut:] for p, owner in lent.items() if owner < cut})

    def forward(self, inputs: Tensor) -> Tensor:
        """Output of the last segment."""
        for segment in self.segments:
            inputs = segment(inputs)
        return inputs

    def partial_loss(self, batch: Batch, level: int) -> Tensor:
        """Mean loss of `batch`, with a graph that reaches down to `level` and no further.

        Parameters
        ----------
        batch
            Inputs and targets.
        level
            1 to `depth`.
        """
        values, targets = batch
        segments, cut = list(self.segments), self.cut(level)
        with torch.no_grad():
            for segment in segments[:cut]:
                values = segment(values)
        with frozen(self._left_out[level - 1]):
            for segment in segments[cut:]:
                values = segment(values)
            return self.loss(values, targets)

    def backpropagate(self, batch: Batch, level: int) -> Tensor:
        """Forward pass and backward pass to `level`; gradients add up in the parameters.

        Returns the loss, detached.
        """
        loss = self.partial_loss(batch, level)
        if loss.requires_grad:  # a suffix without parameters has nothing to backpropagate
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


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
