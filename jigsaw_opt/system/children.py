"""Child processes and temporary folders that never outlive this process, even if it is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from jigsaw_opt.errors import JigsawError
from jigsaw_opt.system import keeper_process
from jigsaw_opt.system.interrupts import SIGNALS

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


class Keeper(AbstractContextManager["Keeper"]):
    """A small process that keeps a temporary folder for as long as this process lives.

    It waits at a pipe that only this process holds the other end of. At the end of the pipe, which comes with the end
    of the block or of this process, by whatever signal, it removes the folder. It has a session of its own, so that no
    signal to a group or a terminal reaches it.

    `folder`: the folder, empty at first.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line.endswith("\n"):
                raise JigsawError("the process that keeps a temporary folder has ended")
            said = json.loads(line)
            if "failed" in said:
                raise JigsawError(said["failed"])
        except BaseException:  # Ctrl-C too: the process that keeps the folder must not stay
            self._end()
            raise
        self.folder = Path(said["folder"])

    def lease(self) -> Connection:
        """Return another hold on the folder, for a process of `multiprocessing`: it stays until all have ended."""
        from multiprocessing.connection import Connection

        assert self._process.stdin is not None
        return Connection(os.dup(self._process.stdin.fileno()), readable=False)

    def end_too(self, process: int) -> None:
        """Have a child of this process, by its number, killed at the end of the pipe: the last one so named."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # someone has killed the keeper
            self._process.stdin.write(f"{process}\n")
            self._process.stdin.flush()

    def __exit__(self, *_: object) -> None:
        self._end()
        # Removed already, unless someone has killed the keeper itself.
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with self._process.stdout:
            self._process.stdout.read()
        self._process.wait()


def start_deaf(process: BaseProcess) -> None:
    """Start a process of the fork server such that signals to the whole group reach neither it nor the server.

    Who started it ends it. It calls `hear_signals` as soon as it runs. The server ends with this process, also while it
    still imports; by itself it would go through a shutdown of what it has imported, which may take seconds.

    No module of the current folder is imported, unless this process would import it as well.
    """
    from multiprocessing import forkserver, resource_tracker

    keeper = _server_keeper()
    with _same_path():
        with catch_warnings():  # one that was killed is started anew, and what it kept track of none of ours needs
            filterwarnings("ignore", "resource_tracker: process died unexpectedly")
            resource_tracker.ensure_running()  # when started later, it lets through what is blocked here
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()
            number = _server_number()
            assert number is not None
            keeper.end_too(number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        process.start()  # waits while the server imports, where a signal must be heard


@contextmanager
def _same_path() -> Iterator[None]:
    """Have every process that `multiprocessing` starts in this block look for modules where this one does.

    By itself it starts ``python -c``, which looks into the current folder first, and some versions hand the path of
    imports on only after the server has loaded its modules. A flag, unlike ``PYTHONSAFEPATH``, is not handed down to
    other programs that these processes start.
    """
    from multiprocessing import spawn, util

    path = spawn.get_preparation_data("path")["sys_path"]
    first = f"import sys; sys.path[:] = {path!r}; command = sys.argv[2]; del sys.argv[1:3]; exec(command)"
    with _one_at_a_time:  # or a second thread would take the flags of the first for the usual ones
        usual = util._args_from_interpreter_flags  # type: ignore[attr-defined]
        # What follows, which is "-c" and the command of multiprocessing, is in `sys.argv` of ours.
        util._args_from_interpreter_flags = lambda: [*usual(), "-P", "-c", first]  # type: ignore[attr-defined]
        try:
            yield
        finally:
            util._args_from_interpreter_flags = usual  # type: ignore[attr-defined]


_one_at_a_time = RLock()


def end_server() -> None:
    """Kill the fork server, if there is one: whoever waits for it to start a process has an `EOFError` at once."""
    if (number := _server_number()) is not None:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def _server_number() -> int | None:
    from multiprocessing import forkserver

    number: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    return number


def _server_keeper() -> Keeper:
    """Return the keeper that ends the fork server and removes its folder even if this process is killed."""
    from multiprocessing.process import current_process

    config = current_process()._config  # type: ignore[attr-defined] # where multiprocessing.util looks for the folder
    if not _for_all_time:
        _for_all_time.append(Keeper())
        config.setdefault("tempdir", str(_for_all_time[0].folder))
    return _for_all_time[0]


_for_all_time: list[Keeper] = []
"""Keepers that end with this process."""


def hear_signals() -> None:
    """Let signals through to this process again, but for Ctrl-C, and none that came before."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for number in SIGNALS:
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
