"""What modules and processes must be like to train: alone, and alike among the workers of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedParameter

from jigsaw_opt.errors import RunFailedError, UsageError, mismatch, unsupported, wrong_order

_SHARDED = {"FSDPModule", "FullyShardedDataParallel"}
"""Classes of sharded modules, by name: who uses them has imported them, and nobody else needs to."""
_ENDED = -1
"""Stands for a fact of a process that has no batch left; digests are not negative."""
_SHOWN = 160
"""Bytes of a fact that a message shows of each process."""


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
        if is_sharded(inside):
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


def is_sharded(module: nn.Module) -> bool:
    """Return whether FSDP shards the parameters of a module."""
    return bool(_SHARDED & {kind.__name__ for kind in type(module).__mro__})


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
            raise mismatch("process_group", "this process is not in the group that it was given")
        return dist.get_rank(group), dist.get_world_size(group)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise wrong_order("WORLD_SIZE", "WORLD_SIZE is above 1: call torch.distributed.init_process_group first")
    return 0, 1


def require_equal_shapes(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Refuse processes that hold parameters of different names, shapes or types.

    `group`: the processes; None for all.
    """
    held = repr([(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in model.named_parameters()])
    found = _gathered([_number(held.encode())], next(model.parameters()).device, group)
    others = [rank for rank, own in enumerate(found) if own != found[0]]
    if others:
        ranks = ", ".join(map(str, others))
        raise UsageError(f"ranks {ranks} hold parameters of other names, shapes or types than rank 0", code="mismatch")


def require_equal_parameters(model: nn.Module, iteration: int, group: dist.ProcessGroup | None) -> None:
    """Raise `RunFailedError` that names the first parameter that differs between processes, and where."""
    named = dict(model.named_parameters())
    digests = [_number(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()) for p in named.values()]
    found = _gathered(digests, next(iter(named.values())).device, group)
    for at, name in enumerate(named):
        others = [rank for rank, own in enumerate(found) if own[at] != found[0][at]]
        if others:
            ranks = ", ".join(map(str, others))
            raise RunFailedError(f"after {iteration} iterations {name} differs from that of rank 0 on ranks {ranks}")


def require_batches(model: nn.Module, group: dist.ProcessGroup | None, has_batch: bool) -> None:
    """Raise `UsageError` in all processes, where some have no batch to find the parts of the model with."""
    found = _gathered([int(has_batch)], next(model.parameters()).device, group)
    without = ", ".join(str(rank) for rank, (has,) in enumerate(found) if not has)
    if without:
        raise UsageError(
            f"ranks {without} have had no batch at all within join(): call prepare(inputs) before, in all processes",
            code="empty",
            path="batches",
        )


def model_facts(model: nn.Module) -> dict[str, str]:
    """Return what the processes must have alike of a model in each pass, for `require_equal_passes`."""
    held = list(model.named_parameters())
    return {
        "model": ", ".join(f"{name} {p.dtype}" for name, p in held),
        "frozen parameters": ", ".join(name for name, p in held if not p.requires_grad) or "none",
    }


def require_equal_passes(
    facts: Mapping[str, str], device: torch.device, group: dist.ProcessGroup | None, has_ended: bool = False
) -> frozenset[int]:
    """Raise `UsageError`, in all processes the same, that says which facts differ between them, and where.

    `facts`: what this process is about to do, by name; all processes have the same names. `has_ended`: whether this
    process has no batch left, so that its facts do not count.
    """
    found = _gathered([_ENDED if has_ended else _number(fact.encode()) for fact in facts.values()], device, group)
    ended = frozenset(rank for rank, own in enumerate(found) if own[0] == _ENDED)
    wrong = {}
    for at, (name, fact) in enumerate(facts.items()):
        numbers = [own[at] for own in found]
        if len({*numbers} - {_ENDED}) > 1:
            texts = [
                bytes(text).rstrip(b"\0").decode(errors="replace") for text in _gathered(_shown(fact), device, group)
            ]
            ranks = {number: [rank for rank, own in enumerate(numbers) if own == number] for number in numbers}
            there = [
                f"{texts[own[0]]} on rank{'s' * (len(own) > 1)} {', '.join(map(str, own))}"
                for number, own in ranks.items()
                if number != _ENDED
            ]
            wrong[name] = "; ".join(there)
    if wrong:
        raise mismatch(
            ", ".join(wrong),
            "the processes do not do the same pass, so nothing is averaged; they differ in "
            + " - ".join(f"{name}: {there}" for name, there in wrong.items()),
        )
    return ended


def gathered_number(number: int, device: torch.device, group: dist.ProcessGroup | None) -> list[int]:
    """Return a number of each process, by rank."""
    return [own for (own,) in _gathered([number], device, group)]


def _shown(text: str) -> list[int]:
    data = text.encode()
    data = data if len(data) <= _SHOWN else data[: _SHOWN - 3] + b"..."
    return list(data.ljust(_SHOWN, b"\0"))


def _number(data: object) -> int:
    return int.from_bytes(sha256(data).digest()[:7])  # type: ignore[arg-type]


def _gathered(numbers: list[int], device: torch.device, group: dist.ProcessGroup | None) -> list[list[int]]:
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    found: list[Tensor] = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return [tensor.tolist() for tensor in found]
