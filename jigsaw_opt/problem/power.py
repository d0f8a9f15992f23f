"""Power caps: how much the GPUs of some servers may draw at once (specification: power)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

__all__ = ["PowerCap", "caps_without"]


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A limit on what the running blocks of some servers draw together.

    Parameters
    ----------
    name
        Its name.
    servers
        Names of the servers whose GPUs count.
    watts
        The most that blocks on these GPUs draw at any moment.
    """

    name: str
    servers: tuple[str, ...]
    watts: int


def caps_without(caps: Iterable[PowerCap] | None, servers: Collection[str]) -> tuple[PowerCap, ...] | None:
    """Return caps without some servers; a cap that has no other server is left out."""
    if caps is None:
        return None
    left = (replace(cap, servers=tuple(name for name in cap.servers if name not in servers)) for cap in caps)
    return tuple(cap for cap in left if cap.servers)
