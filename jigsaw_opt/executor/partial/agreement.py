"""Whether the workers of a job still hold the same parameters."""

from __future__ import annotations

from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import RunFailedError, UsageError

__all__ = ["require_equal_parameters", "require_equal_shapes"]


def require_equal_shapes(model: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Raise `UsageError` if the processes hold parameters of different names, shapes or types."""
    held = repr([(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in model.named_parameters()])
    found = _gathered([_number(held.encode())], next(model.parameters()).device, group)
    others = [rank for rank, own in enumerate(found) if own != found[0]]
    if others:
        ranks = ", ".join(map(str, others))
        raise UsageError(f"ranks {ranks} hold parameters of other names, shapes or types than rank 0")


def require_equal_parameters(model: nn.Module, iteration: int, group: dist.ProcessGroup | None) -> None:
    """Raise `RunFailedError` that names the first parameter that differs between processes, and where.

    Parameters
    ----------
    model
        The same in all processes.
    iteration
        How many have ended, for the message.
    group
        All processes that train it.
    """
    named = dict(model.named_parameters())
    digests = [_number(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()) for p in named.values()]
    found = _gathered(digests, next(iter(named.values())).device, group)
    for at, name in enumerate(named):
        others = [rank for rank, own in enumerate(found) if own[at] != found[0][at]]
        if others:
            ranks = ", ".join(map(str, others))
            raise RunFailedError(f"after {iteration} iterations {name} differs from that of rank 0 on ranks {ranks}")


def _number(data: object) -> int:
    return int.from_bytes(sha256(data).digest()[:7])  # type: ignore[arg-type]


def _gathered(numbers: list[int], device: torch.device, group: dist.ProcessGroup | None) -> list[list[int]]:
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    found: list[Tensor] = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return [tensor.tolist() for tensor in found]
