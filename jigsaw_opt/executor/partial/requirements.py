"""What a module and its process must be like to be trained by partial backpropagation."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedParameter

from jigsaw_opt.errors import UsageError, unsupported

_SHARDED = {"FSDPModule", "FullyShardedDataParallel"}
"""Classes of sharded modules, by name: who uses them has imported them, and nobody else needs to."""


def require_trainable(module: nn.Module, wrapper: type[nn.Module], is_partial: bool) -> None:
    """Raise `UsageError` where a module cannot be trained in a wrapper.

    `wrapper`: the class of what wraps it, of which there is none inside.
    """
    parameters = list(module.parameters())
    if any(isinstance(p, UninitializedParameter) for p in parameters):
        raise unsupported("module", "a lazy module has no parameters yet: run it once before it is wrapped")
    if not any(p.requires_grad for p in parameters):
        raise UsageError("no parameter of the module is trained", code="empty", path="module")
    for name, inside in module.named_modules():
        where = f"its module {name!r}" if name else "the module"
        if isinstance(inside, (nn.DataParallel, DistributedDataParallel, wrapper)):
            kind = type(inside).__name__
            raise unsupported(
                "module", f"{where} is a {kind}, which trains workers of its own: wrap the module within it instead"
            )
        if _SHARDED & {kind.__name__ for kind in type(inside).__mro__}:
            raise unsupported(
                "module",
                f"{where} is sharded by FSDP, so no process has its whole parameters: shard what wraps it instead, "
                "fully_shard(PartialBackprop(module, ...))",
            )
        if is_partial and isinstance(inside, nn.SyncBatchNorm):
            raise unsupported(
                "module", "SyncBatchNorm waits in its backward pass for workers that skip it: use BatchNorm"
            )
    expanded = [name for name, held in [*module.named_parameters(), *module.named_buffers()] if _is_expanded(held)]
    if expanded:
        named = ", ".join(expanded)
        raise unsupported("module", f"the numbers of {named} share memory, as expand() makes them: clone() them")


def require_outermost() -> None:
    """Raise `UsageError` within the forward pass of a `DistributedDataParallel`."""
    if DistributedDataParallel._get_active_ddp_module() is not None:  # type: ignore[no-untyped-call]
        raise unsupported(
            "module", "DistributedDataParallel around PartialBackprop would average gradients twice: leave it out"
        )


def _is_expanded(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and any(
        n > 1 and not step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def place_in(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """Return rank and number of workers in a group; None for the default group, or for a worker alone without one."""
    if dist.is_available() and dist.is_initialized():
        if dist.get_rank(group) < 0:
            raise UsageError(
                "this process is not in the group that it was given", code="mismatch", path="process_group"
            )
        return dist.get_rank(group), dist.get_world_size(group)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        message = "WORLD_SIZE is above 1: call torch.distributed.init_process_group first"
        raise UsageError(message, code="wrong-order", path="WORLD_SIZE")
    return 0, 1
