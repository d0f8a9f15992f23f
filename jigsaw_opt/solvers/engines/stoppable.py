"""Running engines that block, so that they can be stopped, and are left behind where they do not listen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import clock
from jigsaw_opt.system.background import Background

T = TypeVar("T")
_POLL_SECONDS = 0.02
"""Seconds between two looks at whether to stop: short beside any limit, and hardly any work."""
_PATIENCE_SECONDS = 0.5
"""Seconds for which an engine is waited for after it is asked to end."""


def _time_is_over() -> bool:
    return clock.left() <= 0


def run_stoppable(
    call: Callable[[], T], cancel: Callable[[], None], name: str, stopped: Callable[[], bool] = _time_is_over
) -> T:
    """Run an engine in a thread of its own, and return what it returns.

    `stopped`: whether the engine should end; asked every few milliseconds.
    """
    return run_all_stoppable([call], cancel, name, stopped)[0]


def run_all_stoppable(
    calls: Sequence[Callable[[], T]],
    cancel: Callable[[], None],
    name: str,
    stopped: Callable[[], bool] = _time_is_over,
    threads: int = 1,
) -> list[T]:
    """Run engines in threads of their own, and return what they return.

    `stopped`: whether the engines should end; asked every few milliseconds. Without it, they end with the time of the
    solve at hand.
    """
    work = Background(calls, f"jigsaw-{name}", threads)
    try:
        while not work.ended(_POLL_SECONDS) and not stopped():
            pass
    finally:
        # A second Ctrl-C lands here, too.
        ended = _ended_when_asked(work, cancel)
    if not ended:
        raise OutOfTimeError(f"an engine of {name!r} did not end when it was asked to")
    return work.results()


def _ended_when_asked(work: Background[T], cancel: Callable[[], None]) -> bool:
    last = monotonic() + _PATIENCE_SECONDS
    while not work.ended(0):
        if monotonic() >= last:
            work.leave()
            return False
        cancel()
        work.ended(_POLL_SECONDS)
    return True
