"""A model with a loss, whose backward pass may stop at any level by SPB (specification: models).

The forward pass to a level freezes the parameters of deeper buckets. What depends on these and on the inputs alone then
gets no graph: nothing of it is stored, and the backward pass ends there, without even the gradient of what passes the
cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from jigsaw_opt.errors import unsupported

Key = TypeVar("Key", bound=Hashable)


class LeveledModel(nn.Module, ABC):
    """A model that a worker trains, in segments, with a backward pass to any level.

    Attributes
    ----------
    names : tuple of str
        Names of the segments, from the input to the output.
    starts : sequence of Module
        Modules at whose first calls the second segment, the third and so on begin.
    loss : callable or None
        Mean loss of outputs and targets; None where the outputs have their own.
    buckets : tuple of tuple of Parameter
        Trained parameters of buckets 1 to D, bucket 1 at the output side.
    """

    names: tuple[str, ...]
    starts: Sequence[nn.Module]
    loss: Callable[[Any, Any], Tensor] | None
    buckets: tuple[tuple[nn.Parameter, ...], ...]

    @abstractmethod
    def loss_of(self, batch: Any) -> Tensor:
        """Return the mean loss of a batch, one number.

        Parameters
        ----------
        batch
            The batch.
        """

    @property
    def depth(self) -> int:
        """Number of levels, ``D``."""
        return len(self.buckets)

    def beyond(self, level: int) -> tuple[nn.Parameter, ...]:
        """Return trained parameters that a backward pass to `level` does not reach."""
        return tuple(p for bucket in self.buckets[level:] for p in bucket)

    def entering(self, enter: Callable[[int, Any], object]) -> AbstractContextManager[None]:
        """Call `enter` with the index and the inputs of each segment, the first one excepted, as it begins."""
        return first_calls(enumerate(self.starts, 1), enter)

    def partial_loss(self, batch: Any, level: int) -> Tensor:
        """Return the mean loss of `batch`, with a graph that reaches down to `level` and no further.

        Parameters
        ----------
        batch
            Inputs and targets.
        level
            1 to `depth`.
        """
        with frozen(self.beyond(level)):
            return self.loss_of(batch)

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

        Raises
        ------
        UsageError
            The loss has no gradient at full depth.
        """
        with frozen(self.beyond(level)):  # to the end, as activation checkpointing runs parts of the forward pass again
            loss = self.loss_of(batch)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            elif level == self.depth:  # at others there may be nothing to train behind the cut
                message = "the loss has no gradient: no trained parameter is used, or a graph is cut off"
                raise unsupported("loss", message)
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


@contextmanager
def first_calls(modules: Iterable[tuple[Key, nn.Module]], note: Callable[[Key, Any], object]) -> Iterator[None]:
    """Call a function when each module is called for the first time, as long as the block lasts."""
    called: set[Key] = set()

    def noting(key: Key) -> Callable[..., None]:
        def hook(_: nn.Module, *inputs: object) -> None:
            if key not in called:
                called.add(key)
                note(key, inputs)

        return hook

    with ExitStack() as stack:
        for key, module in modules:
            hooked = module.register_forward_pre_hook(noting(key), prepend=True, with_kwargs=True)
            stack.callback(hooked.remove)
        yield


def saved_bytes(model: LeveledModel, batch: Any, level: int) -> tuple[int, ...]:
    """Return by segment the bytes that a block at `level` saves for its backward pass (`saved_by_segment`)."""

    def forward(enter: Callable[[int], None]) -> Tensor:
        with model.entering(lambda index, _: enter(index)):
            return model.partial_loss(batch, level)

    return saved_by_segment(forward, model.parameters(), len(model.names))


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
