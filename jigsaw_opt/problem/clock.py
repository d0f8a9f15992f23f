"""The time limit: one clock for everything that a solve does, from compiling to the exact models.

A solve sets the limit with `limited`; every loop that grows with the instance calls `check_deadline`, which raises
`OutOfTimeError` once the time is over or the solve is cancelled. Without a limit, `check_deadline` does nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

from jigsaw_opt.errors import OutOfTimeError

T = TypeVar("T")
_POLL_SECONDS = 0.02


class Clock:
    """A limit under way.

    `seconds`: seconds of wall-clock time from now on, or None for no limit. `cancel`: ends the time when it is set.
    `grace`: seconds after the limit, or after the cancel is noticed, for which work still goes on: a first plan that is
    nearly there is worth more than none. `outer`: a clock that this one is over with, or None.
    """

    def __init__(
        self, seconds: float | None, cancel: threading.Event, grace: float = 0.0, outer: Clock | None = None
    ) -> None:
        self.started = time.monotonic()
        self._end = self._last = math.inf if seconds is None else self.started + seconds + grace
        self._without_plan = math.inf
        self._cancel, self._grace, self._outer = cancel, grace, outer

    @property
    def left(self) -> float:
        """Seconds until the time is over, the grace included; infinity without a limit."""
        return 0.0 if self.over else min(self._end, self._without_plan) - time.monotonic()

    def end_without_plan(self, seconds: float) -> None:
        """Let the time be over so many seconds after the start, unless there is a plan by then."""
        self._without_plan = self.started + seconds

    def has_plan(self, seconds: float) -> None:
        """Let the time, now that there is a plan, be over so many seconds before the limit, or as soon as asked for."""
        self._without_plan = math.inf
        self._end = min(self._end, self._last - seconds)

    @property
    def over(self) -> bool:
        """Whether the time is over, the grace included."""
        now = time.monotonic()
        if self._cancel.is_set():
            self._end = min(self._end, now + self._grace)
        return now >= min(self._end, self._without_plan) or (self._outer is not None and self._outer.over)


_clock: ContextVar[Clock | None] = ContextVar("jigsaw_clock", default=None)


@contextmanager
def limited(clock: Clock) -> Iterator[None]:
    """Let `clock` limit everything in the block; threads that it starts take part by `in_context`."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)


def within(seconds: float) -> Clock:
    """Return a clock that is over after so many seconds, or as soon as the one at hand is."""
    return Clock(min(left(), seconds), threading.Event(), outer=_clock.get())


def current() -> Clock | None:
    """Return the clock of the solve at hand, or None where there is none."""
    return _clock.get()


def left() -> float:
    """Return the seconds that the solve at hand has left; infinity where there is no limit."""
    clock = _clock.get()
    return math.inf if clock is None else clock.left


def check_deadline() -> None:
    """Raise if the time of the solve is over.

    Raises
    ------
    OutOfTimeError
        The time is over.
    """
    clock = _clock.get()
    if clock is not None and clock.over:
        raise OutOfTimeError("the time limit was reached")


def checking_deadline(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, and check the deadline before each."""
    for item in items:
        check_deadline()
        yield item


@contextmanager
def halting(flag: MutableSequence[int]) -> Iterator[None]:
    """Set the first number of `flag` to 1 once the time is over, for code that cannot call `check_deadline`."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS):
            if clock.over:
                flag[0] = 1
                return

    watcher = threading.Thread(target=watch, name="jigsaw-clock", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def in_context(call: Callable[[], T]) -> Callable[[], T]:
    """Return the call for another thread, where it is limited as it would be here."""
    context = copy_context()
    return lambda: context.run(call)
