"""What a backward pass keeps: bytes of the tensors that autograd saves, counted by storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from jigsaw_opt.executor.models.leveled_model import LeveledModel

__all__ = ["saved_by_segment", "saved_bytes"]


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
