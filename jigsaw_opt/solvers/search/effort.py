"""How long a move goes on: the longer the more often it was in vain."""

from __future__ import annotations

__all__ = ["Effort"]


class Effort:
    """A length that grows by half after every call in vain, and starts anew after a success.

    `longest`: the most that it becomes; it begins with 1. `length`: length of the next call, in units of the first one.
    """

    def __init__(self, longest: float) -> None:
        self.longest, self.length = longest, 1.0

    def spent(self, success: bool) -> None:
        """Record whether a call of this length led to a better plan."""
        self.length = 1.0 if success else min(self.longest, 1.5 * self.length)
