"""A model in segments (specification: models)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

from torch import Tensor, nn

from jigsaw_opt.executor.leveled_model import LeveledModel
from jigsaw_opt.executor.model_call import require_scalar
from jigsaw_opt.executor.zoo.network import Batch

__all__ = ["SegmentedModel"]


class SegmentedModel(LeveledModel):
    """Segments in a row with a loss.

    A parameter that several segments share (an embedding's table that the output uses too, a module that stands in
    the row twice) is one parameter. It belongs to the segment nearest the input: only a backward pass that reaches it
    has its whole gradient, so shallower ones leave it out. The loss is part of the last segment.

    `names, segments`: name and module of each segment, from the input to the output. `loss`: mean loss over a batch,
    from the last segment's output and the targets. `levels`: level ``d`` (1-based) backpropagates the last
    ``levels[d-1]`` segments; rises strictly to their number.
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
        self.pieces = len(segments)
        owned = self.own_parameters()
        bounds = [self.cut(level) for level in range(len(levels) + 1)]
        self._buckets = tuple(tuple(p for own in owned[low:high] for p in own) for high, low in pairwise(bounds))

    def cut(self, level: int) -> int:
        """Return the number of segments that a backward pass to `level` leaves out; `level` 0 leaves out all."""
        return len(self.segments) - (self.levels[level - 1] if level else 0)

    def own_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Return trained parameters of each segment, a shared one only in the first."""
        seen: set[nn.Parameter] = set()
        owned = []
        for parameters in self._held():
            own = tuple(p for p in parameters if p.requires_grad and p not in seen)
            seen.update(own)
            owned.append(own)
        return tuple(owned)

    def bucket_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Return trained parameters of buckets 1 to D, bucket 1 at the output side."""
        return self._buckets

    def _held(self) -> Iterator[Iterator[nn.Parameter]]:
        """Yield the parameters of each segment, those of the loss with the last one."""
        *others, last = self.segments
        yield from (segment.parameters() for segment in others)
        yield chain(last.parameters(), self.loss.parameters() if isinstance(self.loss, nn.Module) else ())

    def forward(self, inputs: Any) -> Any:
        """Return the output of the last segment."""
        for segment in self.segments:
            inputs = segment(inputs)
        return inputs

    def loss_of(self, batch: Batch, enter: Callable[[int], None] | None = None) -> Tensor:
        """Return the mean loss of a pair of inputs and targets.

        `enter`: called with the index of each segment before it runs.
        """
        values, targets = batch
        for index, segment in enumerate(self.segments):
            if enter is not None:
                enter(index)
            values = segment(values)
        return self.scalar_loss(values, targets)

    def scalar_loss(self, values: Any, targets: Any) -> Tensor:
        """Return the loss of the last segment's output."""
        return require_scalar(self.loss(values, targets))
