"""Adaptive operator selection: which move to make next; those that paid come more often."""

from __future__ import annotations

import random
from collections.abc import Sequence

from jigsaw_opt.solvers.search.params import DriverParams

__all__ = ["AdaptiveSelection"]


class AdaptiveSelection:
    """Draws moves by their successes per unit of work.

    Parameters
    ----------
    names
        Names of the moves; each is tried once, in this order, before any is preferred.
    rng
        Source of chance.
    params
        `decay` and `floor`.
    """

    def __init__(self, names: Sequence[str], rng: random.Random, params: DriverParams) -> None:
        self._names, self._rng, self._params = names, rng, params
        self._untried = list(names)
        self._success = dict.fromkeys(names, 0.0)
        self._work = dict.fromkeys(names, 0.0)

    def next(self) -> str:
        """The move to be made now."""
        if self._untried:
            return self._untried.pop(0)
        total = max(1e-9, sum(self._work.values()))
        floor = self._params.floor
        weights = [(floor + self._success[name]) / max(1e-3, self._work[name] / total) for name in self._names]
        return self._rng.choices(self._names, weights)[0]

    def reward(self, name: str, success: bool, work: float) -> None:
        """Say whether a move led to a better plan, and how much work it took.

        A move that found nothing to do counts as a long one, so that it does not come again at once.
        """
        decay = self._params.decay
        self._success[name] = decay * self._success[name] + (1 - decay) * success
        self._work[name] = decay * self._work[name] + (1 - decay) * (work or self._params.idle_work)
