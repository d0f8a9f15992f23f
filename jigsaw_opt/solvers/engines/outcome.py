"""What every engine for mixed-integer programs is asked and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from jigsaw_opt.formulations.program import Program

__all__ = ["Ending", "Search", "Task"]


class Ending(Enum):
    """How a search ended."""

    SOLVED = "solved"
    """No solution is better than the best one offered by `Task.step` or more."""
    INFEASIBLE = "infeasible"
    """The program has no solution."""
    STOPPED = "stopped"
    """A limit, or `Search.cancel`."""


@dataclass(frozen=True, slots=True)
class Task:
    """One search.

    Parameters
    ----------
    program
        What to minimise, in microseconds.
    step
        Solutions that are better by less are of no interest.
    offer
        Receives the value of every column of each better solution.
    raise_bound
        Receives lower bounds on every solution that is better than those offered by `step`, in microseconds,
        as the engine computes them.
    seconds, nodes
        Limits on the time and on the nodes of the tree, or None.
    seed, threads
        As in `Options`.
    """

    program: Program
    step: float
    offer: Callable[[Sequence[float]], object]
    raise_bound: Callable[[float], None]
    seconds: float | None
    nodes: int | None
    seed: int
    threads: int

    @property
    def gap(self) -> float:
        """Absolute gap at which an engine may call its best solution optimal."""
        return self.step / 2


class Search(Protocol):
    """One search by an engine, made from its `Task`."""

    def run(self) -> Ending:
        """Search until the end, a limit or `cancel`."""

    def cancel(self) -> None:
        """Make `run` return soon; from any thread, any number of times."""
