"""What GPUs and links have room for, and power caps that a block exceeds even alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import agreeing, counted


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


_MOST_CAPS = 16
"""Caps of which each is tried alone with more watts."""


def cause_of_power(
    operations: Operations, job: str, has_place: Callable[[Sequence[PowerCap]], bool], most_watts: int
) -> Iterator[Conflict]:
    """Yield the conflict that caps leave a job no place, though it may have one without them.

    `has_place`: tells whether the job may have a place under some caps, each of its blocks running alone.
    """
    caps = operations.cluster.capacities
    if not caps or has_place(caps) or not has_place(()):
        return
    steps = range(most_watts + 1)
    found = []
    for number, cap in enumerate(caps[:_MOST_CAPS]):
        if has_place(_raised(caps, number, most_watts)):

            def fits(watts: int, number: int = number) -> bool:
                return has_place(_raised(caps, number, watts))

            found.append((bisect_left(steps, True, lo=cap.watts, key=fits), cap))
    others = " that other power caps leave" if len(caps) > 1 else ""
    told = f"some block of job {job} alone draws"
    if found:
        watts, cap = min(found, key=lambda each: each[0] - each[1].watts)
        where = f"under power cap {cap.name!r}, which allows {cap.watts:,} W, wherever the job has room{others}"
        why = f"at least {watts:,} W {where}"
        wanted = f"a cap of at least {watts:,} W, or a place for it outside the cap, is wanted"
    else:
        watts = bisect_left(steps, True, key=lambda watts: has_place(_raised(caps, None, watts)))
        where = f"such as {caps[0].name!r} of {caps[0].watts:,} W, wherever the job has room"
        why = f"more than a power cap allows, {where}"
        wanted = f"caps of at least {watts:,} W each, or a place for it outside of them, are wanted"
    yield Conflict("power", (job,), f"{told} {why}; {wanted}")


def _raised(caps: Sequence[PowerCap], number: int | None, watts: int) -> list[PowerCap]:
    """Return the caps where one of them, or each for None, allows at least so many watts."""
    return [altered(cap, watts=max(cap.watts, watts)) if number in (None, k) else cap for k, cap in enumerate(caps)]
