"""Rounds of measuring, in which every level and every segment has its turn, so that a slow moment falls on all."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jigsaw_opt.executor.devices import spread
from jigsaw_opt.executor.models.leveled_model import first_calls, saved_bytes
from jigsaw_opt.executor.models.model_call import inputs_and_targets
from jigsaw_opt.executor.partial.outputs import tensors
from jigsaw_opt.executor.profiling.results import LevelProfile, ModelProfile, SegmentProfile, is_wide
from jigsaw_opt.executor.profiling.segment_times import segment_times
from jigsaw_opt.executor.profiling.trainee import Trainee


def boundaries(trainee: Trainee) -> tuple[list[int | None], list[tuple[str, ...]]]:
    """Watch a forward pass in training mode; buffers move on.

    By segment, bytes that it or one before it has made and that a later one reads; None for the last one, and where a
    tensor has no storage to be followed by. And paths of the modules that it holds as a whole; none where the model has
    no paths to name.

    A tensor counts behind every segment from the one that makes its storage to the last one that reads it, with the
    bytes that are read of it, so connections that skip segments count as well. The batch itself does not.
    """
    batch = trainee.draw(0)
    storages = _StoragesRead((*trainee.model.parameters(), *trainee.model.buffers(), *tree_leaves(batch)))
    called: dict[str, int] = {}

    def enter(index: int, _: object) -> None:
        storages.segment = index

    modules = () if trainee.root is None else trainee.root.named_modules()
    with (
        torch.no_grad(),
        torch.compiler.set_stance("force_eager"),
        first_calls(modules, lambda name, _: called.setdefault(name, storages.segment)),
        trainee.model.entering(enter),  # behind the modules, for the hooks of later ones run first
        storages,
    ):
        trainee.model.loss_of(batch)
    own: list[list[str]] = [[] for _ in range(trainee.model.depth)]
    for name in [] if trainee.root is None else _whole("", trainee.root, called):
        own[called[name]].append(name)
    return [*map(storages.sent_bytes, range(trainee.model.depth - 1)), None], list(map(tuple, own))


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


_LOGGER = logging.getLogger(__name__)
_LONGEST = 3
"""How many times as many rounds as asked for are measured, at most, where the times differ much."""
_RATES = (1e-2, 1e-3, 1e-4)
_STEPS = 5
_RISE = 10


def warm(trainee: Trainee, reset: Callable[[], None]) -> None:
    """Train a few steps, as the initial point is often special: layers of zeros, and an optimiser without a past.

    Rates at which the loss soon is no number, or rises a lot, are passed over. What follows trains at the optimiser's
    own rate.
    """
    groups = trainee.optimiser.param_groups
    own = [group["lr"] for group in groups]
    for rate in _RATES:
        for group in groups:
            group["lr"] = rate
        for _ in range(_STEPS):
            trainee.block(trainee.model.depth)
        trainee.step()
        losses = trainee.losses()
        if all(map(isfinite, losses)) and max(losses) <= _RISE * abs(losses[0]):
            break
        reset()
    for group, before in zip(groups, own, strict=True):
        group["lr"] = before


def measure(trainee: Trainee, warm_up: int, repeats: int, gpu_type: str, batch: int | None) -> ModelProfile:
    """Measure a model where it is; it trains on meanwhile.

    Times in microseconds and bytes of each segment and each level.

    `warm_up, repeats`: rounds before measuring, at least 1, and rounds measured, at least 1. A round is the passes over
    the segments one by one and one block at each level. `batch`: samples of a batch, if known.
    """
    depth, most = trainee.model.depth, _LONGEST * repeats
    segments: list[list[float]] = []
    levels: list[list[float]] = []
    steps: list[float] = []
    trainee.block(depth)
    for turn in range(warm_up + most):
        if len(levels) >= repeats and not any(is_wide(spread(times)) for times in zip(*levels, strict=True)):
            break
        trainee.round = turn
        _LOGGER.info("round %d of %d", turn + 1, warm_up + (repeats if turn < warm_up + repeats else most))
        segment_row = segment_times(trainee, turn)
        blocks = [trainee.block(level) for level in range(1, depth + 1)]
        trainee.require_numbers()
        if turn >= warm_up:
            segments.append(segment_row)
            levels.append([step + rest for step, rest in blocks])
            steps.extend(step for step, _ in blocks)
    trainee.step()
    return ModelProfile(
        _segment_profiles(trainee, segments, spread(steps).median),
        tuple(
            LevelProfile(level, spread(times), _block_memory(trainee, level))
            for level, times in enumerate(zip(*levels, strict=True), 1)
        ),
        trainee.state_bytes(),
        gpu_type,
        batch,
        sum(value.nbytes for value in tensors(inputs_and_targets(trainee.draw(0), trainee.model.loss is None)[0])),
    )


def _segment_profiles(trainee: Trainee, rounds: list[list[float]], step_us: float) -> tuple[SegmentProfile, ...]:
    columns = [spread(column) for column in zip(*rounds, strict=True)]
    depth = trainee.model.depth
    sizes = [sum(p.nbytes for p in own) for own in reversed(trainee.model.buckets)]
    steps = [step_us * size / max(1, sum(sizes)) for size in sizes]
    times = (columns[at * depth : (at + 1) * depth] for at in range(4))
    found = boundaries(trainee)
    rows = zip(trainee.model.names, *times, steps, sizes, _saved(trainee, depth), *found, strict=True)
    return tuple(SegmentProfile(*row) for row in rows)


def _saved(trainee: Trainee, level: int) -> tuple[int, ...]:
    """Return bytes that a block at `level` saves for its backward pass, by segment."""
    batch = trainee.draw(0)
    with torch.compiler.set_stance("force_eager"):
        return saved_bytes(trainee.model, batch, level)


def _block_memory(trainee: Trainee, level: int) -> int:
    device = trainee.device
    if device.type != "cuda":
        return sum(_saved(trainee, level))
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    trainee.pass_to(level, keep=True)
    return torch.cuda.max_memory_allocated(device) - before
