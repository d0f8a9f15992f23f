"""What GPUs and links have room for, and how much more is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.text import agreeing, counted

__all__ = ["amount", "joined_parts", "more_memory", "unjoined"]


def more_memory(count: int, memory: int, servers: Sequence[Server]) -> str:
    """Return a clause on how much more memory is needed at least, and where; empty where there are too few GPUs.

    `memory`: bytes that each of them must have.
    """
    ranked = sorted(servers, key=lambda server: -server.gpu_memory)
    last = next(islice(chain.from_iterable([server] * server.gpus for server in ranked), count - 1, None), None)
    if last is None:
        return ""
    return f"; at least {amount(memory - last.gpu_memory)} more are wanted, as on each GPU of server {last.name}"


def amount(size: int) -> str:
    """Return bytes in a unit that is read at once, rounded up."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{-(-size * 10 // unit) / 10:g} {name}"
    return counted(size, "byte")


def joined_parts(operations: Operations, servers: Iterable[Server], policy: str | None) -> list[list[Server]]:
    """Return servers by the part of the cluster that the routes of a policy join.

    `policy`: route policy; None for any route.
    """
    component, wanted = operations.routes.under(policy).component, {server.name for server in servers}
    parts: dict[int, list[Server]] = {}
    for server, part in zip(operations.cluster.servers, component, strict=True):
        if server.name in wanted:
            parts.setdefault(part, []).append(server)
    return list(parts.values())


def unjoined(job: str, count: int, who: str, gpus: int, policy: str | None) -> str:
    """Return the message that links join too few GPUs for the workers or slots of a job.

    `policy`: its route policy; None for none.
    """
    links = "links" if policy is None else f"links that its route policy {policy!r} allows"
    message = (
        f"job {job} has {counted(count, who)}, and no more than {gpus:,} of its GPUs {agreeing(gpus)} joined by {links}"
    )
    return f"{message}; links that join {count - gpus:,} more of them are wanted, or at most {counted(gpus, who)}"
