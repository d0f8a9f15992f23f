"""Stop rules of a solve: each one says whether it holds, and what it is called; and computing that a signal ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy, relative_gap
from jigsaw_opt.system.interrupts import on_interrupt


class SolveProgress(Protocol):
    """What a stop rule may ask for."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""

    @property
    def kept(self) -> float:
        """Seconds of a time limit kept back for checking and writing the plan."""

    improved: float

    @property
    def least(self) -> int | None:
        """Objective of the best plan; None without one."""

    @property
    def proven(self) -> Bound:
        """Bound of all plans."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """A condition under which a solve ends, and what it is called."""

    reason: StoppedBy
    holds: Callable[[SolveProgress], bool]


def no_plan(limit: float) -> StopRule:
    """Return the rule that there is no plan at all for some seconds."""
    return StopRule(StoppedBy.TIME, lambda state: state.least is None and state.seconds >= limit)


def stop_rules(options: Options) -> tuple[StopRule, ...]:
    """Return the rules that `options` ask for; the first one that holds names the reason."""
    target, gap, idle, limit = options.target, options.gap, options.no_improvement, options.time_limit

    def is_close(state: SolveProgress) -> bool:
        return gap is not None and state.least is not None and relative_gap(state.least, state.proven.value) <= gap

    def is_idle(state: SolveProgress) -> bool:
        # Never before the first plan.
        return idle is not None and state.least is not None and time.monotonic() - state.improved >= idle

    return (
        StopRule(StoppedBy.INTERRUPT, lambda _: options.cancel.is_set()),
        StopRule(StoppedBy.TARGET, lambda s: target is not None and s.least is not None and s.least <= target),
        StopRule(StoppedBy.GAP, is_close),
        StopRule(StoppedBy.NO_IMPROVEMENT, is_idle),
        StopRule(StoppedBy.TIME, lambda state: limit is not None and state.seconds >= limit - state.kept),
    )


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
