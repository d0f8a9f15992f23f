"""What searches over activities have in common: they go on step by step, and count their work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import ClassVar

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.activities.orders.current import Offer
from jigsaw_opt.solvers.solve_state import SolveState

SECONDS_OF_VISIT = 2e-8
"""Deterministic seconds of an activity visited."""
SECONDS_OF_LISTING = 1e-5
"""Deterministic seconds of an activity in a list schedule."""


class StepwiseSearch(ABC):
    """A search that offers every better plan as soon as it is found.

    Parameters
    ----------
    solve_state
        The solve under way; it may receive other plans from elsewhere at the same time.
    operations
        The compiled instance.
    offer
        Takes better plans; `SolveState.offer` where None.
    stream
        Number of this search among several on one incumbent; each has chance of its own.

    Attributes
    ----------
    chance
        What the random numbers of the class are seeded with beside the seed.
    spent
        Deterministic seconds so far.
    exhausted
        Whether there is no point in going on.
    """

    chance: ClassVar[str]

    def __init__(
        self, solve_state: SolveState, operations: Operations, offer: Offer | None = None, stream: int = 0
    ) -> None:
        self.solve_state, self.operations, self.offer = solve_state, operations, offer or solve_state.offer
        # The number of the stream is shifted beyond the bits of a seed, so that no other seed has the chance of this
        # stream.
        self.seed = solve_state.options.seed + (stream << 64)
        self.random = Random(f"{self.chance}/{self.seed}")
        self.spent, self.exhausted = 0.0, False

    @abstractmethod
    def step(self, work: float, seconds: float) -> None:
        """Make one step.

        Parameters
        ----------
        work
            Limit in deterministic seconds.
        seconds
            Limit in seconds of the clock.
        """

    def _stop_after(self, work: float, seconds: float) -> Callable[[int], bool]:
        """Return a function that counts visits of activities and returns whether limits that begin now are reached."""
        limit, end = self.spent + work, self.solve_state.seconds + seconds

        def stop(visits: int) -> bool:
            self.spent += visits * SECONDS_OF_VISIT
            return self.solve_state.reason() is not None or self.spent >= limit or self.solve_state.seconds >= end

        return stop
