"""Adaptive operator selection: which move to make next; those that gain much in little time come more often."""

from __future__ import annotations

import random
from collections.abc import Sequence

from jigsaw_opt.solvers.params import DriverParams

__all__ = ["AdaptiveSelection"]

_FADING, _LEAST = 0.8, 0.1
"""What a call in vain leaves of a move's floor, and the least that any number of them leaves.

Without fading, moves that never gain take a steady share of the work. If nothing were left, they would never come again
when the plan has changed.
"""
_IDLE_WORK = 10.0
"""Work that a move counts as which found nothing to do: more than any move takes, so that it seldom comes again."""


class AdaptiveSelection:
    """Draws moves by what they gain per unit of work.

    A gain is a share of the gap that was open before the move. Both gains and work are averaged with forgetting
    (probability matching; Fialho, Da Costa, Schoenauer and Sebag, 2010). A move that gains nothing keeps a floor, so
    that it is asked again, and the floor fades with each call in vain.

    `names`: names of the moves; each is tried once, in this order, before any is preferred.
    """

    def __init__(self, names: Sequence[str], rng: random.Random, params: DriverParams) -> None:
        self._names, self._rng, self._params = list(names), rng, params
        self._untried = list(names)
        self._gain = dict.fromkeys(names, 0.0)
        self._work = dict.fromkeys(names, 0.0)
        self._in_vain = dict.fromkeys(names, 0)
        self._made: set[str] = set()
        self._again: str | None = None

    def next(self) -> str:
        """Return the move to be made now.

        A move that gained is made once again before those that were not tried yet: on a large instance a round of all
        of them takes as long as many a limit.
        """
        if self._again is not None:
            again, self._again = self._again, None
            return again
        if self._untried:
            return self._untried.pop(0)
        total_gain = sum(self._gain.values()) or 1.0
        total_work = max(1e-9, sum(self._work.values()))
        weights = [
            (self._floor(name) + self._gain[name] / total_gain) / max(1e-3, self._work[name] / total_work)
            for name in self._names
        ]
        return self._rng.choices(self._names, weights)[0]

    def drop(self, name: str) -> None:
        """Stop drawing a move."""
        self._names.remove(name)
        if self._again == name:
            self._again = None

    def _floor(self, name: str) -> float:
        return self._params.floor * max(_LEAST, _FADING ** self._in_vain[name])

    def reward(self, name: str, gain: float, work: float) -> None:
        """Record what a move gained and how much work it took.

        A move that found nothing to do counts as a long one, so that it does not come again at once.

        `gain`: its gain, as a share of the gap that was open before. `work`: its work, in deterministic seconds or in
        seconds of the clock; 0 where it found nothing to do.
        """
        decay = self._params.decay
        self._gain[name] = decay * self._gain[name] + (1 - decay) * gain
        self._work[name] = decay * self._work[name] + (1 - decay) * (work or _IDLE_WORK)
        first = name not in self._made
        self._made.add(name)
        self._again = name if first and gain > 0 and self._untried else None
        self._in_vain[name] = 0 if gain > 0 else self._in_vain[name] + 1
