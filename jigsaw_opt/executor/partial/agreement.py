"""Whether the workers of a job still hold the same parameters, and do the same pass."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import RunFailedError, UsageError

_ENDED = -1
"""Stands for a fact of a process that has no batch left; digests are not negative."""
_SHOWN = 160
"""Bytes of a fact that a message shows of each process."""


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
        raise UsageError(
            "the processes do not do the same pass, so nothing is averaged; they differ in "
            + " - ".join(f"{name}: {there}" for name, there in wrong.items()),
            code="mismatch",
            path=", ".join(wrong),
        )
    return ended


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
