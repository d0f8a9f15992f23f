"""Training that leaves no trace: everything that it changes is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from jigsaw_opt.executor.randomness import own_draws

_DENORMAL = 1e-40
"""A denormal number in single precision."""


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers in the block alone: other code of the process may need them.

    What is computed with them takes many times as long, and real training meets few.
    """
    kept = (torch.tensor(_DENORMAL) * 1).item() > 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(not kept)


@contextmanager
def moved_to(device: torch.device, held: nn.Module) -> Iterator[None]:
    """Have the children of a module on a device in the block, and put them back afterwards."""
    homes = {child: next((p.device for p in child.parameters()), device) for child in held.children()}
    buffers = _buffers(held)
    try:
        for child in homes:
            child.to(device)
        yield
    finally:
        for child, home in homes.items():
            child.to(home)
        _put_back(buffers)


@contextmanager
def restored(held: nn.Module, optimiser: torch.optim.Optimizer) -> Iterator[Callable[[], None]]:
    """Put everything back at the end that training in the block has changed.

    That is parameters, buffers, gradients, the optimiser's state and options, random generators, and which modules are
    in training mode. Modules begin in training mode; what is inside a module in training mode stays as it is. Denormal
    numbers are flushed meanwhile.
    """
    ours = [p for group in optimiser.param_groups for p in group["params"]]
    gradients = {p: p.grad for p in (*held.parameters(), *ours)}
    flags = [(module, module.training) for module in held.modules()]
    buffers = _buffers(held)
    tensors = [*gradients, *(b for own in buffers.values() for b in own.values() if b is not None)]
    reset_tensors, reset_optimiser = _kept(tensors), _kept_optimiser(optimiser)

    def reset() -> None:
        _put_back(buffers)
        reset_tensors()
        reset_optimiser()

    devices = sorted({t.device.index for t in tensors if t.device.type == "cuda"})
    with flushed_denormals(), torch.random.fork_rng(devices=devices), own_draws(0):
        try:
            for child in held.children():
                if not child.training:
                    child.train()
            for parameter in gradients:
                parameter.grad = None
            yield reset
        finally:
            reset()
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
            for module, flag in flags:
                module.training = flag


def _buffers(held: nn.Module) -> dict[nn.Module, dict[str, Tensor | None]]:
    return {module: dict(module._buffers) for module in held.modules()}


def _put_back(buffers: dict[nn.Module, dict[str, Tensor | None]]) -> None:
    """Give modules their buffers again, where they have others or further ones now."""
    for module, own in buffers.items():
        module._buffers.clear()
        module._buffers.update(own)


def _kept(tensors: Iterable[Tensor]) -> Callable[[], None]:
    """Return what gives tensors their values of now; copies are on the CPU, for devices are often full."""
    copies = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors]

    def reset() -> None:
        for tensor, copy in copies:
            tensor.data.copy_(copy)

    return reset


def _kept_optimiser(optimiser: torch.optim.Optimizer) -> Callable[[], None]:
    state: dict[Any, dict[str, Any]] = {p: dict(own) for p, own in optimiser.state.items()}
    reset_tensors = _kept(leaf for leaf in tree_leaves(list(state.values())) if isinstance(leaf, Tensor))
    groups = [dict(group) for group in optimiser.param_groups]

    def reset() -> None:
        optimiser.state.clear()
        optimiser.state.update({p: dict(own) for p, own in state.items()})
        for group, kept in zip(optimiser.param_groups, groups, strict=True):
            group.clear()
            group.update(kept)
        reset_tensors()

    return reset
