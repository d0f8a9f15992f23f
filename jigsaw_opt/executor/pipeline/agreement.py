"""Whether what the user's function returns is what was planned, and the same in all processes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import combinations
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import InvalidInputError, Problem, mismatch
from jigsaw_opt.planning.partition.result import Stage
from jigsaw_opt.text import named


def compare_modules(name: str, modules: Sequence[nn.Module], parts: Sequence[Stage]) -> list[str]:
    """Compare the stages of a model with those of the partition that the pipeline was made of.

    What is to be told of sizes that differ, which may be meant.
    """
    problems = []
    for number, (module, part) in enumerate(zip(modules, parts, strict=True)):
        known = list(getattr(module, "names", None) or [child for child, _ in module.named_children()])
        runs = {f"{first}-{last}" for first, last in combinations(known, 2)}
        inside = tuple(f"{child}." for child in known)
        # A profile with cuts calls what stands before the first one so; every other part is called after its cut.
        first = () if number else ("input", "the input")
        if missing := [node for node in part.nodes if not (node in {*known, *runs, *first} or node.startswith(inside))]:
            wrong = f"has {named(missing)}, and what {name} returns has {named(known)} there"
            problems.append(Problem(f"the partition: $.stages[{number}].nodes", wrong, code="mismatch"))
    if problems:
        raise InvalidInputError(problems)
    sizes = [sum(parameter.nbytes for parameter in module.parameters()) for module in modules]
    return [
        f"stage {number} has {size:,} bytes of parameters, and the partition says {part.parameter_bytes:,}"
        for number, (size, part) in enumerate(zip(sizes, parts, strict=True))
        if size != part.parameter_bytes
    ]


def compare_sent(number: int, sent_bytes: int, parts: Sequence[Stage]) -> list[str]:
    """Return a message where a stage sends other bytes of a micro-batch than the partition says.

    `parts`: stages of the partition; empty without one.
    """
    if not parts or sent_bytes in (0, parts[number].output_bytes):
        return []
    planned = f"{parts[number].output_bytes:,}"
    return [
        f"stage {number} sends {sent_bytes:,} bytes of a micro-batch, and the partition says {planned}; if it planned"
        " micro-batches of another size, all times differ, and `jigsaw pipeline --batch` says what they share"
    ]


def require_same_batch(inputs: Sequence[Tensor], targets: Tensor, group: dist.ProcessGroup | None) -> None:
    """Compare the first batch of all processes of a job.

    `group`: the processes of the job; None for all.
    """
    digest = sha256()
    for tensor in (*inputs, targets):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, digest.hexdigest(), group=group)
    other = next((rank for rank, one in enumerate(found) if one != found[0]), None)
    if other is not None:
        raise mismatch(
            "batch",
            f"the first batch of process {other} is not that of process 0: "
            "all processes of a job in stages take the same batches, so draw them alike whatever the rank",
        )
