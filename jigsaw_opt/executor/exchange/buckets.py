"""Gradients by bucket: one buffer a bucket, and the moment in the backward pass when each is complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn

from jigsaw_opt.executor.models.leveled_model import LeveledModel

_AnyTensor = TypeVar("_AnyTensor", bound=Tensor)

Ready = Callable[[int], None]
"""Called with a bucket, from 1, as soon as its gradients are complete."""


class GradientBuckets:
    """The gradients of a model, each a view into the buffer of its bucket, so that a bucket is exchanged in one piece.

    `model`: where its parameters will stay; its gradients are this object's from now on. `buffers`: gradients of
    buckets 1 to D, one flat tensor for each type of numbers and device in a bucket; an empty one for a bucket without
    parameters.
    """

    def __init__(self, model: LeveledModel) -> None:
        self._buckets = model.buckets
        self._of_bucket = tuple(tuple(map(_attached, alike(own) or [()])) for own in self._buckets)
        self.buffers = tuple(chain.from_iterable(self._of_bucket))
        self._missing: list[int] = []
        self._announced = self._level = 0
        self._ready: Ready = _nobody
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._counting(bucket))  # type: ignore[no-untyped-call]
            for bucket, parameters in enumerate(self._buckets)
            for parameter in parameters
        ]

    def of(self, bucket: int) -> tuple[Tensor, ...]:
        """Return the gradients of a bucket, from 1."""
        return self._of_bucket[bucket - 1]

    def begin(self, level: int, ready: Ready) -> None:
        """Clear all gradients and announce to `ready` buckets 1 to `level`, in this order, in what follows.

        `ready`: called in the thread of the backward pass, which goes on when it returns.
        """
        for buffer in self.buffers:
            buffer.zero_()
        self._missing = [len(parameters) for parameters in self._buckets]
        self._announced, self._level, self._ready = 0, level, ready

    def end(self) -> None:
        """Announce what is left after the backward pass: buckets with a parameter that the loss does not depend on."""
        self._missing[: self._level] = [0] * self._level
        self._announce()

    def close(self) -> None:
        """Let go of the model: Python does not see that autograd's hooks keep it and this object alive."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._ready = _nobody

    def _counting(self, bucket: int) -> Callable[[Tensor], None]:
        def count(_: Tensor) -> None:
            if self._announced < self._level:
                self._missing[bucket] -= 1
                self._announce()

        return count

    def _announce(self) -> None:
        while self._announced < self._level and self._missing[self._announced] == 0:
            self._announced += 1
            self._ready(self._announced)


def alike(tensors: Iterable[_AnyTensor]) -> Collection[Sequence[_AnyTensor]]:
    """Return tensors by type of numbers and device."""
    groups: dict[tuple[torch.dtype, torch.device], list[_AnyTensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return groups.values()


def _attached(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Make each gradient a view into one buffer, which is returned; autograd then adds to it in place."""
    if not parameters:
        return torch.zeros(0)
    buffer, views = flat_gradients(parameters)
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view
    return buffer


def flat_gradients(parameters: Sequence[nn.Parameter], further: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Return zeros for the gradients of parameters of one type and device in a row, and the gradient of each in it.

    `further`: how many numbers stand behind them.
    """
    sizes = [parameter.numel() for parameter in parameters]
    flat = torch.zeros(sum(sizes) + further, dtype=parameters[0].dtype, device=parameters[0].device)
    pieces = torch.split(flat, [*sizes, further])
    return flat, [piece.view_as(parameter) for piece, parameter in zip(pieces, parameters, strict=False)]


def _nobody(_: int) -> None:
    """Take an announcement that nobody waits for."""
