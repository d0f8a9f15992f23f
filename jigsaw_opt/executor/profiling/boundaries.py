"""What passes from one segment of a model to later ones in a forward pass, and which modules each segment has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jigsaw_opt.executor.partial.forward_order import first_calls
from jigsaw_opt.executor.profiling.trainee import Trainee

__all__ = ["Boundaries", "boundaries"]


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The boundaries between the segments of a model.

    `sent_bytes`: behind each segment but the last, bytes that it or one before it has made and that a later one reads;
    None where a tensor has no storage to be followed by. `modules`: for each segment, paths of the modules that it
    holds as a whole; empty where the model has no paths to name.
    """

    sent_bytes: tuple[int | None, ...]
    modules: tuple[tuple[str, ...], ...]


def boundaries(trainee: Trainee) -> Boundaries:
    """Watch a forward pass in training mode; buffers move on.

    A tensor counts behind every segment from the one that makes its storage to the last one that reads it, with the
    bytes that are read of it, so connections that skip segments count as well. The batch itself does not.
    """
    batch = trainee.draw(0)
    storages = _StoragesRead((*trainee.held.parameters(), *trainee.held.buffers(), *tree_leaves(batch)))
    called: dict[str, int] = {}

    def enter(index: int, _: object) -> None:
        storages.segment = index

    modules = () if trainee.root is None else trainee.root.named_modules()
    with (
        torch.no_grad(),
        torch.compiler.set_stance("force_eager"),
        first_calls(modules, lambda name, _: called.setdefault(name, storages.segment)),
        trainee.entering(enter),  # behind the modules, for the hooks of later ones run first
        storages,
    ):
        trainee.loss(batch)
    own: list[list[str]] = [[] for _ in trainee.names]
    for name in [] if trainee.root is None else _whole("", trainee.root, called):
        own[called[name]].append(name)
    sent = tuple(storages.sent_bytes(segment) for segment in range(trainee.depth - 1))
    return Boundaries(sent, tuple(map(tuple, own)))


class _StoragesRead(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which segment makes each storage, and what later ones read of it.

    `given`: what there is before the pass, tensors among it.
    """

    def __init__(self, given: Sequence[object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.segment = 0
        self._is_whole = True
        self._given = {key for tensor in given if (key := self._key(tensor)) is not None}
        # A weak reference keeps the number of a storage that is freed from being another one's.
        self._made: dict[int, tuple[int, int, StorageWeakRef]] = {}
        self._read: dict[int, dict[tuple[Any, ...], tuple[int, int]]] = defaultdict(dict)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_leaves((args, kwargs)):
            key = self._key(value)
            if key in self._made and self._made[key][0] < self.segment:
                view = (value.storage_offset(), tuple(value.shape), value.stride())
                self._read[key][view] = self.segment, value.numel() * value.element_size()
        outputs = func(*args, **(kwargs or {}))
        for value in tree_leaves(outputs):
            key = self._key(value)
            if key is not None and key not in self._made and key not in self._given:
                storage = value.untyped_storage()
                self._made[key] = self.segment, storage.nbytes(), StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return outputs

    def _key(self, value: object) -> int | None:
        """Return the number of a tensor's storage; None for what is no tensor, or has none."""
        if not isinstance(value, Tensor):
            return None
        try:
            return int(value.untyped_storage()._cdata)
        except NotImplementedError:  # as for sparse ones
            self._is_whole = False
            return None

    def sent_bytes(self, segment: int) -> int | None:
        """Return the bytes that segments up to this one made and later ones read; None if a tensor has no storage."""
        if not self._is_whole:
            return None
        total = 0
        for key, (maker, size, _) in self._made.items():
            read = sum(size for last, size in self._read[key].values() if last > segment) if maker <= segment else 0
            total += min(size, read)
        return total


def _whole(name: str, module: nn.Module, called: dict[str, int]) -> Iterator[str]:
    """Yield the outermost modules that were called and whose own modules all were called first in the same segment."""
    below = {at for inner, _ in module.named_modules(prefix=name) if (at := called.get(inner)) is not None}
    if name in called and name and len(below) == 1:
        yield name
        return
    for child, inner in module.named_children():
        yield from _whole(f"{name}.{child}" if name else child, inner, called)
