"""Tasks in processes of this machine, a new one for each attempt.

A pool that keeps its processes is lost as a whole when the system kills one of them for want of memory. Here
one death costs one attempt, every task starts with the same memory, and its peak is its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.sweeps.task import SweepTask, TaskOutcome, never
from jigsaw_opt.system.children import hear_signals, start_deaf
from jigsaw_opt.system.interrupts import held

_CONTEXT = multiprocessing.get_context("forkserver")
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.1


class LocalEngine:
    """Processes of this machine.

    `jobs`: how many tasks run at once. `attempts`: how often a task is started whose process dies before it has a
    result.
    """

    def __init__(self, jobs: int = 1, attempts: int = 2) -> None:
        if jobs < 1 or attempts < 1:
            raise UsageError(f"jobs and attempts are at least 1, not {jobs} and {attempts}", code="out-of-range")
        self.jobs, self.attempts = jobs, attempts

    def run(
        self, tasks: Sequence[SweepTask], stopped: Callable[[], bool] = never
    ) -> Generator[TaskOutcome, None, None]:
        """Yield the outcome of every task, in the order in which they end, until it is stopped."""
        _CONTEXT.set_forkserver_preload(sorted({task.function.__module__ for task in tasks}))
        waiting = deque((task, 1) for task in tasks)
        running: dict[Connection, _Attempt] = {}
        try:
            while (waiting or running) and not stopped():
                while waiting and len(running) < self.jobs:
                    with held():  # a process that is started and not known yet would never be ended
                        attempt = _Attempt(*waiting.popleft())
                        running[attempt.receiver] = attempt
                for receiver in wait(list(running), _LOOK_SECONDS):
                    assert isinstance(receiver, Connection)
                    attempt = running[receiver]
                    outcome = attempt.outcome()
                    del running[receiver]
                    if outcome.error is not None and attempt.number < self.attempts:
                        # Behind all others: what has killed it is less likely to be there still.
                        waiting.append((attempt.task, attempt.number + 1))
                    else:
                        yield outcome
        finally:
            for attempt in running.values():
                attempt.end(grace_seconds=0)


class _Attempt:
    """A task under way in a process that leads a group of its own."""

    def __init__(self, task: SweepTask, number: int) -> None:
        self.task, self.number = task, number
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        # Not a daemon, as those may have no children.
        self.process = _CONTEXT.Process(target=_work, args=(sender, task.function, task.arguments))
        start_deaf(self.process)
        # The process has the only other end now, so the pipe ends when it does.
        sender.close()

    def outcome(self) -> TaskOutcome:
        """Return what came of it, once the pipe has something to read or has ended."""
        values: Mapping[str, Any] | None = None
        with suppress(EOFError, OSError):
            values = self.receiver.recv()
        self.end(_GRACE_SECONDS)
        return (
            TaskOutcome(self.task, error=_cause(self.process.exitcode))
            if values is None
            else TaskOutcome(self.task, values)
        )

    def end(self, grace_seconds: float) -> None:
        """End the process, by force after a grace, with all that it has started."""
        self.process.join(grace_seconds)
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.receiver.close()


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    return f"its process ended with exit code {exit_code} and no result"


def _work(sender: Connection, function: Any, arguments: tuple[Any, ...]) -> None:
    # A group of its own: Ctrl-C on the terminal reaches only the driver, which then ends the group.
    os.setsid()
    hear_signals()
    threading.Thread(target=_end_with_driver, daemon=True).start()
    values = function(*arguments)
    # Where the driver was killed a moment ago nobody is left to read.
    with suppress(BrokenPipeError):
        sender.send(values)
    sender.close()


def _end_with_driver() -> None:
    """Watch the driver and end with it: a driver that was killed cannot end its processes."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os.killpg(0, signal.SIGKILL)
