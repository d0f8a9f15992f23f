"""Which kind of move to make next: those that paid come more often."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["Choice"]

_FORGET = 0.8
_FLOOR = 0.05
_IDLE_WORK = 10.0


class Choice:
    """Adaptive choice among kinds of moves, by successes per unit of work.

    Parameters
    ----------
    names
        The kinds; each is tried once, in this order, before any is preferred.
    draw
        Source of chance.
    """

    def __init__(self, names: Sequence[str], draw: random.Random) -> None:
        self._names, self._draw = names, draw
        self._untried = list(names)
        self._success = dict.fromkeys(names, 0.0)
        self._work = dict.fromkeys(names, 0.0)

    def next(self) -> str:
        """The kind to be tried now."""
        if self._untried:
            return self._untried.pop(0)
        total = max(1e-9, sum(self._work.values()))
        weights = [(_FLOOR + self._success[name]) / max(1e-3, self._work[name] / total) for name in self._names]
        return self._draw.choices(self._names, weights)[0]

    def reward(self, name: str, success: bool, work: float) -> None:
        """Say whether a move of a kind led to a better plan, and how much work it took.

        A move that found nothing to do counts as a long one, so that its kind does not come again at once.
        """
        work = work or _IDLE_WORK
        self._success[name] = _FORGET * self._success[name] + (1 - _FORGET) * success
        self._work[name] = _FORGET * self._work[name] + (1 - _FORGET) * work
