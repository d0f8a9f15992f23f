"""Stop rules of a solve: each one says whether it holds, and what it is called; and computing that a signal ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy, relative_gap
from jigsaw_opt.system.interrupts import on_interrupt

__all__ = [
    "Gap",
    "Interrupt",
    "NoImprovement",
    "NoPlan",
    "SolveProgress",
    "StopRule",
    "Target",
    "TimeLimit",
    "interruptible",
    "stop_rules",
]


class SolveProgress(Protocol):
    """What a stop rule may ask for."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""

    @property
    def kept(self) -> float:
        """Seconds of a time limit kept back for checking and writing the plan."""

    objective: int | None
    improved: float

    @property
    def proven(self) -> Bound:
        """Bound of all plans."""


class StopRule(Protocol):
    """A condition under which a solve ends."""

    reason: ClassVar[StoppedBy]

    def holds(self, state: SolveProgress) -> bool:
        """Return whether the solve should end now."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The cancel flag is set."""

    options: Options
    reason: ClassVar[StoppedBy] = StoppedBy.INTERRUPT

    def holds(self, state: SolveProgress) -> bool:
        """Return whether the flag is set."""
        return self.options.cancel.is_set()


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Wall-clock seconds are over."""

    limit: float
    reason: ClassVar[StoppedBy] = StoppedBy.TIME

    def holds(self, state: SolveProgress) -> bool:
        """Return whether the limit is reached."""
        return state.seconds >= self.limit - state.kept


@dataclass(frozen=True, slots=True)
class Gap:
    """The relative gap is small enough."""

    gap: float
    reason: ClassVar[StoppedBy] = StoppedBy.GAP

    def holds(self, state: SolveProgress) -> bool:
        """Return whether there is a plan within the gap."""
        return state.objective is not None and relative_gap(state.objective, state.proven.value) <= self.gap


@dataclass(frozen=True, slots=True)
class Target:
    """The plan is good enough."""

    target: int
    reason: ClassVar[StoppedBy] = StoppedBy.TARGET

    def holds(self, state: SolveProgress) -> bool:
        """Return whether there is a plan at or below the target."""
        return state.objective is not None and state.objective <= self.target


@dataclass(frozen=True, slots=True)
class NoImprovement:
    """No better plan for some seconds; does not hold before the first plan."""

    seconds: float
    reason: ClassVar[StoppedBy] = StoppedBy.NO_IMPROVEMENT

    def holds(self, state: SolveProgress) -> bool:
        """Return whether the last better plan is too long ago."""
        return state.objective is not None and time.monotonic() - state.improved >= self.seconds


@dataclass(frozen=True, slots=True)
class NoPlan:
    """No plan at all for some seconds."""

    limit: float
    reason: ClassVar[StoppedBy] = StoppedBy.TIME

    def holds(self, state: SolveProgress) -> bool:
        """Return whether there is still none."""
        return state.objective is None and state.seconds >= self.limit


def stop_rules(options: Options) -> tuple[StopRule, ...]:
    """Return the rules that `options` ask for; the first one that holds names the reason."""
    rules: list[StopRule] = [Interrupt(options)]
    if options.target is not None:
        rules.append(Target(options.target))
    if options.gap is not None:
        rules.append(Gap(options.gap))
    if options.no_improvement is not None:
        rules.append(NoImprovement(options.no_improvement))
    if options.time_limit is not None:
        rules.append(TimeLimit(options.time_limit))
    return tuple(rules)


@contextmanager
def interruptible(options: Options) -> Iterator[None]:
    """Let a signal set the cancel flag of the options in place of ending the program.

    What is computed in the block looks at the flag, and ends within a second of it with its best result.
    """
    came: list[bool] = []

    def cancel() -> None:
        came.append(True)
        options.cancel.set()

    with on_interrupt(cancel):
        try:
            yield
        except OutOfTimeError:
            if came:
                raise KeyboardInterrupt from None
            raise
