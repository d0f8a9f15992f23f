"""What a backward pass keeps: bytes of the tensors that autograd saves, counted by storage."""

from __future__ import annotations

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from jigsaw_opt.executor.segments import SegmentedModel
from jigsaw_opt.executor.zoo.network import Batch

__all__ = ["saved_bytes"]


def saved_bytes(model: SegmentedModel, batch: Batch, level: int) -> tuple[int, ...]:
    """Bytes that a block at `level` saves for its backward pass, by segment.

    A storage that several segments save counts once, for the one nearest the output. So the sum over the last
    segments of a full pass is what a pass to their level saves, as activations are counted (specification: memory).
    Parameters do not count, as they are held anyway.

    Parameters
    ----------
    model
        The model; runs one forward pass.
    batch
        Inputs and targets, where the model is.
    level
        1 to the model's depth.

    Returns
    -------
    tuple of int
        One entry a segment, from the input; 0 where nothing is saved.
    """
    held = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    found: dict[int, tuple[int, int]] = {}
    current = 0

    def enter(index: int) -> None:
        nonlocal current
        current = index

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in held:
            found[storage.data_ptr()] = current, storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, _same):
        loss = model.partial_loss(batch, level, enter)  # held to the end, so that no storage is freed and used again
    del loss
    return tuple(sum(size for owner, size in found.values() if owner == index) for index in range(len(model.segments)))


def _same(tensor: Tensor) -> Tensor:
    return tensor
