"""Power caps: how much the GPUs of some servers may draw at once (specification: power)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.rules.part import CheckedPart


@dataclass(frozen=True, slots=True)
class PowerCap(CheckedPart, definition="power_cap"):
    """A limit on what the running blocks of some servers draw together.

    `servers`: names of the servers whose GPUs count. `watts`: the most that blocks on these GPUs draw at any moment.
    """

    name: str
    servers: tuple[str, ...]
    watts: int


def caps_without(caps: Iterable[PowerCap] | None, servers: Collection[str]) -> tuple[PowerCap, ...] | None:
    """Return caps without some servers; a cap that has no other server is left out.

    `caps`: the caps, or None where none are stated.
    """
    if caps is None:
        return None
    left = (altered(cap, servers=tuple(name for name in cap.servers if name not in servers)) for cap in caps)
    return tuple(cap for cap in left if cap.servers)


def most_watts(caps: Iterable[PowerCap]) -> dict[str, int]:
    """Return the most that a block may draw on a GPU even alone, by server; servers without a cap are left out."""
    most: dict[str, int] = {}
    for cap in caps:
        for name in cap.servers:
            most[name] = min(cap.watts, most.get(name, cap.watts))
    return most
