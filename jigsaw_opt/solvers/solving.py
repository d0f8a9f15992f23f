"""A solve that goes on beside its caller: as an iterator of its events, and in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Unpack
from weakref import WeakSet, finalize

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import GivenOptions, Options, options_of
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Event, Report, Result
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state.request import Solver


def solving(
    instance: Instance,
    method: str | Solver = "auto",
    options: Options | None = None,
    *,
    start: Plan | None = None,
    fix: Fix | None = None,
    **option: Unpack[GivenOptions],
) -> Solving:
    """Begin to solve an instance in a thread of its own.

    Parameters
    ----------
    instance, method, options, start, fix, **option
        As in `solve`. Signals are the caller's: no handler is installed.

    Returns
    -------
    Solving
        An iterator over the events. Leaving its loop, or its ``with`` block, ends the solve.
    """
    return Solving(partial(solve, instance, method, start=start, fix=fix), options_of(options, option))


class Solving(Iterator[Event]):
    """A solve under way.

    Iterating gives the newest event each time there is one, and ends with the solve. A reader who is slower than the
    solver misses events in between, never the last one; the trajectory of the result has them all. What the solve
    raises is raised from the iterator, and from `result`.

    In ``for event in solving(...)`` leaving the loop in any way ends the solve, as nothing else holds the iterator. An
    iterator with a name is ended by ``with``, by `close`, or by the end of the program.
    """

    def __init__(self, begin: Callable[..., Result], options: Options) -> None:
        # The caller's flag may be that of other solves, too: leaving this one must not end those.
        self._cancel = _LinkedFlag(options.cancel)
        self._newest = _Newest()
        own = replace(options, cancel=self._cancel)
        pool = ThreadPoolExecutor(1, thread_name_prefix="jigsaw-solving")
        self._future: Future[Result] = pool.submit(begin, options=own, on_event=self._newest.put)
        self._future.add_done_callback(self._newest.end)
        pool.shutdown(wait=False)
        # Nothing of the solve holds this object, so it is gone as soon as the caller lets it go.
        finalize(self, self._cancel.set)

    def __next__(self) -> Event:
        event = self._newest.take()
        if event is None:
            self._future.result()
            raise StopIteration
        return event

    def __enter__(self) -> Solving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cancel(self) -> None:
        """Ask the solve to end with its best plan, and return at once."""
        self._cancel.set()

    def close(self) -> None:
        """End the solve and wait until it has ended."""
        self.cancel()
        wait([self._future])

    @property
    def result(self) -> Result:
        """Return the result; wait for the end of the solve, which only its limits or `cancel` bring about.

        Raises
        ------
        JigsawError
            As `solve` does.
        """
        return self._future.result()


class _LinkedFlag(threading.Event):
    """A flag that counts as set once another one is."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other
        _FLAGS.add(self)

    def is_set(self) -> bool:
        return super().is_set() or self._other.is_set()


_FLAGS: WeakSet[_LinkedFlag] = WeakSet()


def _cancel_all() -> None:
    for flag in list(_FLAGS):
        flag.set()


# The interpreter waits for the threads of pools before it runs what `atexit` holds: only this hook comes before them.
threading._register_atexit(_cancel_all)  # type: ignore[attr-defined]


class _Newest:
    """The newest event that nobody has taken yet, handed from one thread to another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._event: Event | None = None
        self._ended = False

    def put(self, event: Event) -> None:
        """Put an event in the place of one that was not taken."""
        with self._changed:
            self._event = event
            self._changed.notify()

    def end(self, _: object) -> None:
        """Say that there will be no more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> Event | None:
        """Wait for the newest event and return it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._event is not None or self._ended)
            event, self._event = self._event, None
            return event


async def solve_async(
    instance: Instance,
    method: str | Solver = "auto",
    options: Options | None = None,
    *,
    start: Plan | None = None,
    fix: Fix | None = None,
    on_event: Report | None = None,
    **option: Unpack[GivenOptions],
) -> Result:
    """Solve in a thread of its own, as `solve` does.

    Where the task is cancelled, as by `asyncio.wait_for`, the flag `Options.cancel` is set: the solve ends at its next
    look at it, and its result is dropped.

    Parameters
    ----------
    instance, method, options, start, fix, on_event, **option
        As of `solve`; `on_event` is called in that thread.

    Raises
    ------
    JigsawError
        As of `solve`.
    """
    asked = options_of(options, option)
    begun = asyncio.to_thread(solve, instance, method, asked, start=start, fix=fix, on_event=on_event)
    running = asyncio.ensure_future(begun)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        asked.cancel.set()
        running.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at, or Python complains
        raise
