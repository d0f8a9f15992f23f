"""Signals that ask a program to end: Ctrl-C, SIGTERM (Slurm, Kubernetes, Docker) and SIGHUP (a terminal that closes).

A program that nothing is lost of ends at once (`as_program`). A block of code that has something to keep listens
(`on_interrupt`, `interrupt_flag`), and one that must not be cut in two lets signals wait (`held`). All three take over
what would end the program and give it back at their end; what is ignored stays ignored, and outside the main thread
they do nothing.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any, TypeAlias

INTERRUPTED = 130
"""Exit code of a program that was asked to end, by whichever signal."""
SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__)
_LAST = 3
"""Who asks so often wants the end at once, ..."""
_PATIENCE_SECONDS = 1.0
"""... unless all came at once: a terminal and a program between may pass on the same Ctrl-C."""
_SHOW_CURSOR = b"\x1b[?25h"

_NOTHING = "nothing was kept"
_kept = _NOTHING

_Disposition: TypeAlias = "Callable[[int, FrameType | None], Any] | int | None"


class _Taking:
    """A handler that stands for what was there before it."""

    def __init__(self) -> None:
        self.before: dict[int, _Disposition] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        raise NotImplementedError

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in the block, as far as they are to be taken over."""
        import threading  # here, so that the program is ready for signals as soon as it can be

        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in SIGNALS}
            self.before = {number: before for number, before in found.items() if _may_be_taken(number, before)}
        try:
            for number in self.before:
                signal.signal(number, self)
            yield
        finally:
            for number, before in self.before.items():
                signal.signal(number, before)


class _Listener(_Taking):
    """Calls a function at the first signal, and passes signals on to a handler of the program around."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call
        self._count, self._first = 0, 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._first = monotonic()
            self._call()
        before = self.before[number]
        if callable(before) and not _ends(before):
            before(number, frame)
        elif self._count >= _LAST and monotonic() - self._first >= _PATIENCE_SECONDS:
            signal.signal(number, before)
            signal.raise_signal(number)


class _Holder(_Taking):
    """Keeps signals for later."""

    def __init__(self) -> None:
        super().__init__()
        self.caught: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.caught.append(number)


@contextmanager
def on_interrupt(call: Callable[[], object]) -> Iterator[None]:
    """Have a function called in place of ending the program: once in the block, at the first signal.

    A second signal changes nothing. From the third on, at least a second after the first, a signal does what it
    would have done without the block. A handler of Ctrl-C that the program around has installed is called as well;
    its handlers of other signals are left alone.
    """
    with _Listener(call).installed():
        yield


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Have a signal noted in place of ending the program: the block is given a call that says whether one has come."""
    came: list[bool] = []
    with on_interrupt(lambda: came.append(True)):
        yield lambda: bool(came)


@contextmanager
def held() -> Iterator[None]:
    """Let signals wait for the end of the block."""
    holder = _Holder()
    try:
        with holder.installed():
            yield
    finally:
        for number in holder.caught:
            signal.raise_signal(number)


def keeps(words: str = _NOTHING) -> None:
    """Let `interrupted_line` say so of what a program has kept, in place of what was to be said before."""
    global _kept
    _kept = words


def interrupted_line() -> str:
    """Return the line that a program ends with that is interrupted where nobody listens."""
    return f"interrupted: {_kept}"


def as_program() -> None:
    """Let a signal that nobody listens to end this process at once, with one line and `INTERRUPTED`.

    Raising an exception instead, as Python does at Ctrl-C, breaks imports and shutdown in odd ways.
    """
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end_at_once)
    # Python drops handlers some time before its end; then a signal is too late to change anything.
    atexit.register(_deafen)


def settled(code: int) -> None:
    """Say that the work of the program is done: from now on a signal only hastens its end, with this exit code."""
    for number in SIGNALS:
        if signal.getsignal(number) is _end_at_once:
            signal.signal(number, lambda *_: os._exit(code))


def end_at_once(code: int) -> None:
    """End the program, whose work is done, with this exit code. What `atexit` holds is done first.

    Python's own shutdown takes half a second after a large instance, and does not go well with a thread that was left
    behind in native code. Only a profiler or a debugger goes through it.
    """
    if sys.getprofile() is not None or sys.gettrace() is not None:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _deafen() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + f"{interrupted_line()}\n".encode())
    os._exit(INTERRUPTED)


def _ends(handler: _Disposition) -> bool:
    """Return whether it is one of those that end the program."""
    return handler in (signal.SIG_DFL, signal.default_int_handler, _end_at_once)


def _may_be_taken(number: int, handler: _Disposition) -> bool:
    """Return whether it ends the program or is one of ours; or any handler of Ctrl-C, which is then passed on."""
    if _ends(handler) or isinstance(handler, _Taking):
        return True
    return number == signal.SIGINT and callable(handler)
