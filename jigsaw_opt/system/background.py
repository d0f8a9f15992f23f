"""Calls in threads of their own, which can be left behind where they do not end.

Native code in a thread cannot be ended from outside. A thread that is left behind holds neither its caller nor the exit
of the process. Python's own shutdown takes time, in which such a thread may come back from native code, and the
destructors of native libraries free what it uses; either would end the process by a signal. So the program
`jigsaw` leaves both out (`interrupts.end_at_once`), any other process with such a thread the destructors.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache
from threading import Thread
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Calls under way.

    `calls`: what is called, in this order. `threads`: number of calls that run at once.
    """

    def __init__(self, calls: Sequence[Callable[[], T]], name: str, threads: int = 1) -> None:
        self._answers: list[_Answer[T]] = [_Answer() for _ in calls]
        self._waiting = deque(zip(self._answers, calls, strict=True))
        # The interpreter waits at its end for every thread that is no daemon.
        self._threads = [Thread(target=self._work, name=name, daemon=True) for _ in calls[:threads]]
        for thread in self._threads:
            thread.start()

    def ended(self, seconds: float) -> bool:
        """Return whether all calls end within so many seconds."""
        return not wait(self._answers, seconds).not_done

    def results(self) -> list[T]:
        """Return what the calls return, once they have ended; what one of them raises is raised here."""
        return [answer.result() for answer in self._answers]

    def leave(self) -> None:
        """Begin no further call, and wait for none."""
        self._waiting.clear()
        _leave_out_destructors()

    def _work(self) -> None:
        while self._waiting:
            with suppress(IndexError):  # another thread was faster
                answer, call = self._waiting.popleft()
                with answer:
                    answer.set_result(call())


class _Answer(Future[T]):
    """The outcome of a call: whatever leaves the block is raised from `result`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is not None:
            self.set_exception(error)
        return True


@cache
def _leave_out_destructors() -> None:
    """Let the process end after the shutdown of Python, without destructors of native libraries, where glibc is."""
    library = ctypes.CDLL(None if os.name == "posix" else "msvcrt")
    if hasattr(library, "on_exit"):
        # It is called with the exit code first, as `_exit` takes it.
        library.on_exit(ctypes.cast(library._exit, ctypes.c_void_p), None)
