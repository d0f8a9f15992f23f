"""Simulated annealing over placement, priorities and waiting; a list schedule says what each change is worth."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp

from jigsaw_opt.solvers.greedy.evaluation import Evaluator, Outcome
from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.search.balance import Balance

__all__ = ["Annealing", "Draft"]

_LEAST_FACTOR, _MOST_FACTOR = 0.3, 1.7
_PLACE_SHARE = 0.6
_FOCUS_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Draft:
    """A placement with priorities, and what comes out.

    Parameters
    ----------
    spots
        Where every job is.
    urgency, hold_us
        By job, the factor on its priority, and its earliest start.
    outcome
        The list schedule.
    """

    spots: Sequence[PlacedJob]
    urgency: Sequence[float]
    hold_us: Sequence[int]
    outcome: Outcome


class Annealing:
    """Changes a draft step by step.

    Parameters
    ----------
    balance
        Makes the changes of the placement.
    evaluator
        Says what a draft is worth.
    draw
        Source of chance.
    """

    def __init__(self, balance: Balance, evaluator: Evaluator, draw: random.Random) -> None:
        self.balance, self.evaluator, self.draw = balance, evaluator, draw

    def draft(self) -> Draft | None:
        """The placement at hand under the plain priorities; None where memory admits no levels."""
        spots = self.balance.loads.settled()
        if spots is None:
            return None
        urgency, hold = [1.0] * len(spots), [0] * len(spots)
        return Draft(self.balance.spots(), urgency, hold, self.evaluator.evaluate(spots, urgency, hold))

    def run(self, start: Draft, steps: int, heat: float, stop: Callable[[Draft], bool]) -> Draft:
        """The best draft that some steps lead to.

        Parameters
        ----------
        start
            Where to begin.
        steps
            How many drafts are tried.
        heat
            Share of the objective that the first steps may lose; it falls to 0.
        stop
            Called with the best draft after every step; true ends the run.
        """
        self.balance.adopt(start.spots)
        best = current = start
        for step in range(steps):
            temperature = heat * best.outcome.value * (1 - step / steps) ** 2
            after = self._step(current, temperature)
            if after is not None:
                current = after
                if after.outcome.value < best.outcome.value:
                    best = after
            if stop(best):
                break
        return best

    def _step(self, current: Draft, temperature: float) -> Draft | None:
        """The draft after one change, or None where the change is not kept."""
        urgency, hold = current.urgency, current.hold_us
        moved: Sequence[tuple[int, PlacedJob]] = ()
        if self.draw.random() < _PLACE_SHARE:
            change = self.balance.change(self._late(current))
            if change is None:
                return None
            moved = change[0]
        else:
            urgency, hold = self._priorities(current)
        spots = self.balance.loads.settled()
        outcome = None if spots is None else self.evaluator.evaluate(spots, urgency, hold)
        if outcome is not None and self._accepts(outcome.value - current.outcome.value, temperature):
            return Draft(self.balance.spots(), urgency, hold, outcome)
        self.balance.undo(moved)
        return None

    def _accepts(self, loss: int, temperature: float) -> bool:
        return loss <= 0 or (temperature > 0 and self.draw.random() < exp(-loss / temperature))

    def _late(self, current: Draft) -> int | None:
        """Now and then the job that ends last, or one that shares a GPU with it."""
        if self.draw.random() >= _FOCUS_SHARE:
            return None
        ends = current.outcome.ends
        last = max(range(len(ends)), key=ends.__getitem__)
        gpu = self.draw.choice(current.outcome.jobs[last].gpus)
        return self.draw.choice(list(self.balance.loads.on_gpu[gpu]))

    def _priorities(self, current: Draft) -> tuple[list[float], list[int]]:
        """One or two factors drawn again, or a job held until another one begins or ends."""
        draw, count = self.draw, len(current.spots)
        urgency, hold = list(current.urgency), list(current.hold_us)
        for _ in range(draw.choice((1, 1, 2))):
            urgency[draw.randrange(count)] = draw.uniform(_LEAST_FACTOR, _MOST_FACTOR)
        if draw.random() < 0.3:
            other, outcome = draw.randrange(count), current.outcome
            hold[draw.randrange(count)] = draw.choice((0, 0, outcome.begins[other], outcome.ends[other]))
        return urgency, hold
