"""Forward passes that keep their inputs alone, and compute again what backward passes need.

`torch.utils.checkpoint` computes again for every call of autograd. The part of a split backward pass for the weights is
one call for each group of parameters, so here what is computed again stays up to the end of the last part.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import get_device_states, set_device_states

from jigsaw_opt.errors import RunFailedError


class _Saved:
    """A tensor that autograd saves; it is there from the second forward pass on."""

    __slots__ = ("shape", "tensor")

    def __init__(self, shape: torch.Size) -> None:
        self.shape = shape
        self.tensor: Tensor | None = None


def recomputed(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run a forward pass whose saved tensors are computed again when a backward pass asks for the first of them.

    The second forward pass draws the same random numbers, and leaves buffers as they are. Each tensor is let go of with
    the node that saved it.
    """
    saved: list[_Saved] = []
    draws, devices = torch.get_rng_state(), get_device_states(*args)

    def pack(tensor: Tensor) -> _Saved:
        saved.append(_Saved(tensor.shape))
        return saved[-1]

    def again() -> None:
        found: list[Tensor] = []

        def keep(tensor: Tensor) -> None:
            found.append(tensor.detach())

        buffers = [each.clone() for each in module.buffers()]
        own = [
            value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value for value in args
        ]
        # The draws of what runs between the two passes go on as if there had been one.
        with torch.random.fork_rng(devices[0]), torch.enable_grad(), saved_tensors_hooks(keep, _refuse):
            torch.set_rng_state(draws)
            set_device_states(*devices)
            module(*own, **kwargs)
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), buffers, strict=True):
                buffer.copy_(value)
        if [each.shape for each in found] != [each.shape for each in saved]:
            raise RunFailedError("a stage computes its activations again, and other tensors come of it than before")
        for old, tensor in zip(saved, found, strict=True):
            old.tensor = tensor
        saved.clear()

    def unpack(one: _Saved) -> Tensor:
        if one.tensor is None:
            again()
        assert one.tensor is not None, "the second pass has found it"
        return one.tensor

    with saved_tensors_hooks(pack, unpack):
        return module(*args, **kwargs)


def _refuse(_: object) -> Tensor:
    raise AssertionError("nothing goes backward through the second forward pass")
