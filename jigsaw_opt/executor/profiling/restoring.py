"""Training that leaves no trace: everything that it changes is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from jigsaw_opt.executor.partial.forward_order import undisturbed

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
    buffers = {module: dict(module._buffers) for module in held.modules()}
    try:
        for child in homes:
            child.to(device)
        yield
    finally:
        for child, home in homes.items():
            child.to(home)
        for module, own in buffers.items():  # there may be others or further ones now
            module._buffers.clear()
            module._buffers.update(own)


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
    state: dict[Any, dict[str, Any]] = {p: dict(own) for p, own in optimiser.state.items()}
    options = [dict(group) for group in optimiser.param_groups]
    others = [*ours, *(leaf for leaf in tree_leaves(list(state.values())) if isinstance(leaf, Tensor))]
    # Copies are on the CPU, for devices are often full.
    with flushed_denormals(), undisturbed(held, others, torch.device("cpu")) as put_back:

        def reset() -> None:
            put_back()
            optimiser.state.clear()
            optimiser.state.update({p: dict(own) for p, own in state.items()})
            for group, kept in zip(optimiser.param_groups, options, strict=True):
                group.clear()
                group.update(kept)

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
