"""Communication hooks, as `DistributedDataParallel` has them, that exchange gradients in place of the exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class GradientBucket:
    """What a hook is given; it has the methods of `torch.distributed.GradBucket`.

    `index`: number of the piece of gradients in this backward pass, from 0. `numbers`: the gradients, flat; zeros where
    this worker has none to give. `views`: the gradient of each parameter, within `numbers`.
    """

    def __init__(
        self, index: int, numbers: Tensor, views: Sequence[Tensor], parameters: Sequence[nn.Parameter], is_last: bool
    ) -> None:
        self._index, self._numbers, self._views = index, numbers, list(views)
        self._parameters, self._is_last = list(parameters), is_last

    def index(self) -> int:
        """Return the number of the piece."""
        return self._index

    def buffer(self) -> Tensor:
        """Return the flat gradients."""
        return self._numbers

    def gradients(self) -> list[Tensor]:
        """Return the gradient of each parameter."""
        return self._views

    def parameters(self) -> list[nn.Parameter]:
        """Return the parameters."""
        return self._parameters

    def is_last(self) -> bool:
        """Return whether no other piece follows in this backward pass."""
        return self._is_last

    def set_buffer(self, buffer: Tensor) -> None:
        """Overwrite the flat gradients."""
        self._numbers.copy_(buffer)


@dataclass(frozen=True)
class CommunicationHook:
    """A hook with its state.

    `state`: the first argument of the hook, such as a process group. `hook`: takes state and bucket, and returns a
    future of the mean over all workers.
    """

    state: Any
    hook: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        """What processes compare."""
        return str(getattr(self.hook, "__qualname__", type(self.hook).__name__))

    def run(self, bucket: GradientBucket, contributors: int, workers: int) -> None:
        """Write the mean over contributors into the bucket; the other workers have given zeros."""
        found = self.hook(self.state, bucket)
        if isinstance(found, torch._C.Future):
            found = found.wait()
        mean = found[0] if isinstance(found, (list, tuple)) else found
        bucket.buffer().copy_(mean)
        if contributors != workers:
            bucket.buffer().mul_(workers / contributors)
