"""A model with a loss, whose backward pass may stop at any level by SPB (specification: models).

The forward pass to a level freezes the parameters of deeper buckets. What depends on these and on the inputs alone then
gets no graph: nothing of it is stored, and the backward pass ends there, without even the gradient of what passes the
cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef


class LeveledModel(nn.Module, ABC):
    """A model that a worker trains, with a backward pass to any level.

    Attributes
    ----------
    pieces : int
        Number of pieces whose begin a forward pass tells.
    """

    pieces = 1

    @abstractmethod
    def bucket_parameters(self) -> tuple[tuple[nn.Parameter, ...], ...]:
        """Return trained parameters of buckets 1 to D, bucket 1 at the output side."""

    @abstractmethod
    def loss_of(self, batch: Any, enter: Callable[[int], None] | None = None) -> Tensor:
        """Return the mean loss of a batch, one number.

        Parameters
        ----------
        batch
            The batch.
        enter
            Called with the index of each piece of the model before it runs.
        """

    @property
    def depth(self) -> int:
        """Number of levels, ``D``."""
        return len(self.bucket_parameters())

    def beyond(self, level: int) -> tuple[nn.Parameter, ...]:
        """Return trained parameters that a backward pass to `level` does not reach."""
        return tuple(p for bucket in self.bucket_parameters()[level:] for p in bucket)

    def partial_loss(self, batch: Any, level: int, enter: Callable[[int], None] | None = None) -> Tensor:
        """Return the mean loss of `batch`, with a graph that reaches down to `level` and no further.

        Parameters
        ----------
        batch
            Inputs and targets.
        level
            1 to `depth`.
        enter
            None, or called with the index of each piece before it runs.
        """
        with frozen(self.beyond(level)):
            return self.loss_of(batch, enter)

    def backpropagate(self, batch: Any, level: int) -> Tensor:
        """Run the forward pass and the backward pass to a level; gradients add up in the parameters.

        Returns the loss, detached.

        Parameters
        ----------
        batch
            The batch.
        level
            Level at which the backward pass ends.

        Returns
        -------
        Tensor
            The loss, detached.
        """
        with frozen(self.beyond(level)):  # to the end, as activation checkpointing runs parts of the forward pass again
            loss = self.loss_of(batch)
            if loss.requires_grad:  # what is reached may have no parameters
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


def saved_bytes(model: LeveledModel, batch: Any, level: int) -> tuple[int, ...]:
    """Return by segment the bytes that a block at `level` saves for its backward pass (`saved_by_segment`)."""
    return saved_by_segment(lambda enter: model.partial_loss(batch, level, enter), model.parameters(), model.pieces)


def saved_by_segment(
    forward: Callable[[Callable[[int], None]], Tensor], parameters: Iterable[nn.Parameter], segments: int
) -> tuple[int, ...]:
    """Return bytes that a forward pass saves for the backward pass, by segment.

    A storage that several segments save counts once, for the one nearest the output. So the sum over the last
    segments of a full pass is what a pass to their level saves, as activations are counted (specification: memory).
    Parameters do not count, as they are held anyway; neither does what is freed before the forward pass ends, such as
    the inputs of a checkpointed part that a pass to a lower level does not reach.

    One entry a segment, from the input; 0 where nothing is saved.

    `forward`: returns a loss; calls what it is given with the index of a segment before that one begins.
    """
    held = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    # Weak references, as an address alone is used again once its storage is freed.
    saved: dict[StorageWeakRef, tuple[int, int]] = {}
    current = 0

    def enter(index: int) -> None:
        nonlocal current
        current = index

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in held:
            saved[StorageWeakRef(storage)] = current, storage.nbytes()  # type: ignore[no-untyped-call]
        return tensor.detach()  # a result that holds itself by its own history would never be freed

    with saved_tensors_hooks(pack, _same):
        loss = forward(enter)  # holds the graph until the sizes are read
    sizes = [entry for storage, entry in saved.items() if not storage.expired()]  # type: ignore[no-untyped-call]
    del loss
    return tuple(sum(size for owner, size in sizes if owner == index) for index in range(segments))


def _same(tensor: Tensor) -> Tensor:
    return tensor
