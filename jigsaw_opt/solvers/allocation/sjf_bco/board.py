"""What a rule sees that chooses the GPUs of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

__all__ = ["GpuLedger", "Rule"]


class GpuLedger(Protocol):
    """GPUs, numbered from 0 through the servers, with what is planned on them."""

    @property
    def sizes(self) -> Sequence[int]:
        """Return the GPUs of every server, ``O_s``."""

    @property
    def server_of(self) -> Sequence[int]:
        """Return the server of every GPU."""

    @property
    def loads(self) -> Sequence[int]:
        """Return the load of every GPU, ``U_g``."""

    def workers(self, job: int) -> int:
        """Return how many GPUs a job needs, ``G_j``."""

    def candidates(self, job: int) -> list[int]:
        """Return the GPUs, ascending, on which the job may start now."""


Rule: TypeAlias = Callable[[int, GpuLedger], "Sequence[int] | None"]
"""Chooses the GPUs of a job, or None where it has to wait."""
