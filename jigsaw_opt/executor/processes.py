"""A few processes on this machine that form one process group, and end together."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from threading import Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from jigsaw_opt.errors import JigsawError, RunFailedError
from jigsaw_opt.system.children import Keeper, end_server, hear_signals, start_deaf
from jigsaw_opt.system.interrupts import on_interrupt

T = TypeVar("T")

TIMEOUT = timedelta(minutes=30)
"""Longest wait of a run for another process; one that has ended is noticed at once."""
_SHORT_TIMEOUT = timedelta(minutes=2)
_GRACE_S = 2.0
"""After the first failure, how long the others may take to say what happened to them."""
_ANSWER_S = 0.7
"""After an interrupt, how long the processes may take to say what they have so far."""
_STOP = b"stop"
_LOGGER = logging.getLogger("jigsaw_opt.executor")
"""Told of the first process too what this one asks for, such as progress."""
_BROKEN = (EOFError, ConnectionError)
"""What reading from a process raises that was killed, as from a worker of a loader."""


class LostProcessError(RunFailedError):
    """A process ended without a word, as one that was killed does.

    `exit_code`: exit code as `multiprocessing` tells it: minus the number of a signal; None where it had not begun.
    """

    def __init__(self, rank: int, exit_code: int | None) -> None:
        self.rank = rank
        if exit_code is None:
            self.how = "was ended before it began"
        else:
            self.how = f"was ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with {exit_code}"
        super().__init__(f"process {rank} {self.how}")


class InterruptedGroupError(KeyboardInterrupt):
    """The processes were stopped by a signal.

    `found`: by rank, what each process had so far (`report_so_far`); None where it did not say in time.
    """

    def __init__(self, found: list[Any]) -> None:
        self.found = found
        super().__init__()


def report_so_far(report: Callable[[], Any]) -> None:
    """Have this process of a group answer an interrupt with what `report` returns."""
    _reports[:] = [report]


_reports: list[Callable[[], Any]] = []


def run_group(
    function: Callable[..., T], count: int, *arguments: Any, backend: str = "gloo", timeout: timedelta = _SHORT_TIMEOUT
) -> list[T]:
    """Call `function` in `count` new processes that have joined a process group, each with one thread.

    Its results by rank. As soon as one process fails or is killed, or this one is interrupted, all are ended; what the
    function raised is raised here.
    """
    context = multiprocessing.get_context("forkserver")
    # Importing torch takes seconds, and so does what its first optimiser imports; the server does it once.
    context.set_forkserver_preload([__name__, "torch._dynamo"])
    with Keeper() as keeper, _RankProcesses() as group, on_interrupt(group.interrupt):
        meeting = (keeper.folder / "store").as_uri()
        for rank in range(count):
            if group.is_interrupted():
                break
            parent, there = context.Pipe()
            hold = keeper.lease()
            level = _LOGGER.getEffectiveLevel() if rank == 0 else logging.CRITICAL
            call = (there, hold, meeting, rank, count, backend, timeout, level, function, arguments)
            process = context.Process(target=_member, args=call, daemon=True)
            with there, hold:
                if not group.start(process):
                    break
            group.handles.append(_ProcessHandle(process, parent))
        return group.results()


def keep_to_share(rank: int, count: int) -> None:
    """Keep this thread, and all that it will start, on its share of the cores, where there is one for each process."""
    if sys.platform != "linux":  # macOS has no way to bind a thread to cores; its scheduler decides.
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= count:
        os.sched_setaffinity(0, cores[rank * len(cores) // count : (rank + 1) * len(cores) // count])


def allow_children() -> None:
    """Let this process of a group start processes, as loaders of the user's own may, in the way of a script's.

    Python forbids it to daemons, for it ends these without a word to their children; torch's loaders look for that.
    """
    multiprocessing.set_start_method(None, force=True)
    multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


@dataclass
class _ProcessHandle:
    """A process, the pipe to it, and what it has said."""

    process: ForkServerProcess
    pipe: Connection
    said: _Said | None = None
    lost: bool = False

    def hear(self) -> None:
        """Note what it says, or that it has ended without a word."""
        try:
            heard = pickle.loads(self.pipe.recv_bytes())
            if isinstance(heard, _Said):
                self.said = heard
            else:  # the level and the message of what it logs while it works
                _LOGGER.log(heard[0], "%s", heard[1])
        except (EOFError, OSError, pickle.UnpicklingError):  # at the end of the pipe, or in the midst of a message
            self.process.join(_GRACE_S)
            self.kill()  # it may have closed the pipe and go on
            self.process.join()
            self.lost = True

    def kill(self) -> None:
        """Kill it, if it still runs, and whatever it has started."""
        assert self.process.pid is not None
        self.process.kill()
        with suppress(ProcessLookupError):  # there is no group yet, or it is empty
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class _Said:
    """The result of a process, or its error."""

    result: Any = None
    error: BaseException | None = None


class _RankProcesses(AbstractContextManager["_RankProcesses"]):
    """Processes none of which outlives this context."""

    def __init__(self) -> None:
        self.handles: list[_ProcessHandle] = []
        self._heard, self._interrupter = multiprocessing.Pipe(duplex=False)
        self._interrupted = False

    def interrupt(self) -> None:
        """Have `results` stop the processes, whatever it waits for.

        Nothing is raised: between the start of a process and the note of it, it would be left behind.
        """
        self._interrupter.send_bytes(_STOP)
        if not self.handles:
            end_server()  # it may import for seconds before it starts the first process

    def start(self, process: ForkServerProcess) -> bool:
        """Start a process; False where an interrupt has ended the wait for it."""
        try:
            start_deaf(process)
        except (EOFError, ConnectionError) as error:
            if not self.is_interrupted():
                raise LostProcessError(len(self.handles), None) from error
            return False
        return True

    def is_interrupted(self) -> bool:
        """Return whether `results` has to stop the processes."""
        return self._interrupted or self._heard.poll()

    def results(self) -> list[Any]:
        deadline: float | None = None
        while pending := [handle for handle in self.handles if handle.said is None and not handle.lost]:
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                break
            sources = [source for handle in pending for source in (handle.pipe, handle.process.sentinel)]
            ready = wait(sources + ([] if self._interrupted else [self._heard]), left)
            if self._heard in ready:
                self._stop(pending)
                deadline = monotonic() + _ANSWER_S
            for handle in pending:
                if handle.process.sentinel in ready:
                    handle.kill()  # what it has started may hold its end of the pipe
                if handle.process.sentinel in ready or handle.pipe in ready:
                    handle.hear()
            if deadline is None and any(handle.lost or (handle.said and handle.said.error) for handle in self.handles):
                deadline = monotonic() + _GRACE_S
        if self.is_interrupted():
            raise InterruptedGroupError([handle.said and handle.said.result for handle in self.handles])
        self._raise_cause()
        return [handle.said.result for handle in self.handles if handle.said]

    def _stop(self, pending: Sequence[_ProcessHandle]) -> None:
        self._interrupted = True
        for handle in pending:
            with suppress(OSError):  # one that has just ended is noticed by its silence
                handle.pipe.send_bytes(_STOP)

    def _raise_cause(self) -> None:
        """Raise what caused the rest: who lost the connection fails with a RuntimeError of torch."""
        errors: list[BaseException] = [
            handle.said.error for handle in self.handles if handle.said and handle.said.error
        ]
        lost = [
            LostProcessError(rank, handle.process.exitcode or 0)
            for rank, handle in enumerate(self.handles)
            if handle.lost
        ]
        causes: list[BaseException] = [*(error for error in errors if isinstance(error, JigsawError)), *lost]
        causes += sorted(errors, key=lambda error: isinstance(error, RuntimeError))
        if causes and isinstance(causes[0], _BROKEN):
            rank = next(at for at, handle in enumerate(self.handles) if handle.said and handle.said.error is causes[0])
            told = f"the connection of process {rank} to a process that it had started broke off"
            raise RunFailedError(f"{told}: {type(causes[0]).__name__}") from causes[0]
        if causes and isinstance(causes[0], dist.DistStoreError):
            raise RunFailedError(f"the file in which processes meet broke off: {causes[0]}") from causes[0]
        if causes:
            raise causes[0]

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            if handle.said is None or handle.said.error:
                handle.kill()
        for handle in self.handles:
            handle.process.join()
            handle.pipe.close()
        self._heard.close()
        self._interrupter.close()


class _Telling(logging.Handler, AbstractContextManager["_Telling"]):
    """Tells the parent what is logged, and what its process has come to before the others can notice it is gone."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe, self._turn = pipe, Lock()
        self._told = False

    def done(self, result: object) -> None:
        self._tell(_Said(result=result))

    def emit(self, record: logging.LogRecord) -> None:
        """Tell what is logged, as long as nothing has been told of the end."""
        with self._turn:
            if not self._told:
                self._pipe.send_bytes(pickle.dumps((record.levelno, record.getMessage())))

    def _tell(self, said: _Said) -> None:
        """Tell the first word that there is; what comes later is of no use."""
        # As plain bytes: a tensor sent as torch shares them could only be read while its process lives.
        data = pickle.dumps(said)
        with self._turn:
            if not self._told:
                self._told = True
                self._pipe.send_bytes(data)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            return
        error.add_note("".join(traceback.format_exception(error)))
        self._tell(_Said(error=_portable(error)))
        _end_at_once()  # threads may still wait for other processes

    def end_with_parent(self) -> None:
        """End this process when the parent has ended, however that came about, or says so; then tell what there is."""
        try:
            if self._pipe.recv_bytes() == _STOP and _reports:
                self._tell(_Said(result=_reports[0]()))
        finally:
            _end_at_once()


def _end_at_once() -> None:
    """End this process and whatever it has started."""
    os.killpg(0, signal.SIGKILL)


def _portable(error: BaseException) -> BaseException:
    """Return `error`, or where it cannot travel to another process its name and message."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except (TypeError, AttributeError, ImportError, pickle.PicklingError):
        return RunFailedError(f"{type(error).__name__}: {error}")


def _member(
    pipe: Connection,
    hold: Connection,
    meeting: str,
    rank: int,
    count: int,
    backend: str,
    timeout: timedelta,
    level: int,
    function: Callable[..., T],
    arguments: Sequence[Any],
) -> None:
    os.setpgid(0, 0)  # so that what it starts, as loaders do, ends with it
    hear_signals()
    with _Telling(pipe) as telling:
        Thread(target=telling.end_with_parent, daemon=True).start()
        if level < logging.WARNING:
            _LOGGER.setLevel(level)
            _LOGGER.addHandler(telling)
        torch.set_num_threads(1)
        if backend == "nccl":
            torch.cuda.set_device(rank)
        dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=count, timeout=timeout)
        result = function(*arguments)
        dist.destroy_process_group()
        telling.done(result)
