"""Commands in processes of their own: limited, measured, and never outlived by a child."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import jigsaw_opt

from .contract import first
from .documents import ONE_JOB

__all__ = ["CODES", "HOME", "Ended", "Running", "failure", "jigsaw", "lasting", "late", "run_jigsaw", "start_seconds"]

HOME = Path(jigsaw_opt.__file__).parents[1]
"""The tree whose code is tried, here and in every process."""
CODES = frozenset({0, 2, 3, 4, 5, 6, 7, 130})
"""Every documented exit code that is no internal error."""
GIBIBYTE = 2**30
_MARK = "JIGSAW_FAULT_CAMPAIGN"
_POLL_SECONDS = 0.005
_TAIL = 300
GRACE_SECONDS = 3.0
"""Children may last so long after the end of a process, to notice it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended.

    Parameters
    ----------
    code
        Its exit code; ``-N`` where signal N ended it.
    seconds
        From its start to its end.
    hung
        Whether it had to be killed.
    survivors
        Command lines of its children that were still there a moment after it; they have been killed.
    """

    command: str
    code: int
    out: str
    err: str
    seconds: float
    mebibytes: float
    hung: bool
    survivors: tuple[str, ...]


class Running:
    """A process under way, in a session of its own.

    Parameters
    ----------
    arguments
        The program and its arguments.
    shown
        The command as a reader may type it.
    environment
        What is added to the environment.
    memory
        Largest address space, in bytes.
    out, err
        Files that its output goes to, instead of being kept for `Ended`.
    prepare
        Called in the new process before the program starts.
    powerless
        Whether it obeys the permissions of files even as root.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        shown: str = "",
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        memory: int | None = 8 * GIBIBYTE,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        out: int | IO[bytes] | None = None,
        err: int | IO[bytes] | None = None,
        prepare: Callable[[], object] | None = None,
        powerless: bool = False,
    ) -> None:
        self.command, self._mark = shown or shlex.join(arguments), uuid.uuid4().hex
        self._kept: tuple[IO[bytes], IO[bytes]] = (tempfile.TemporaryFile(), tempfile.TemporaryFile())  # noqa: SIM115

        def limits() -> None:
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if powerless and os.geteuid() == 0:
                _drop_powers()
            if prepare is not None:
                prepare()

        self.started = time.monotonic()
        self._process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(HOME), **(environment or {}), _MARK: self._mark},
            stdin=stdin,
            stdout=self._kept[0] if out is None else out,
            stderr=self._kept[1] if err is None else err,
            preexec_fn=limits,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def alive(self) -> bool:
        """Whether it has not ended; its end is not yet taken."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def text(self, stream: int = 1) -> str:
        """What it has written so far to standard output (0) or standard error (1)."""
        kept = self._kept[stream]
        size = os.fstat(kept.fileno()).st_size
        return os.pread(kept.fileno(), size, 0).decode(errors="surrogateescape")

    def signal(self, number: int, group: bool = False) -> None:
        """Send a signal to it, or to all of its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number) if group else os.kill(self.pid, number)

    def wait(self, holds: Callable[[], bool], timeout: float) -> bool:
        """Wait until something holds; says whether it did before the end of the process and in time."""
        while self.alive and self.seconds < timeout:
            if holds():
                return True
            time.sleep(_POLL_SECONDS)
        return holds()

    def children(self) -> dict[int, str]:
        """All living processes that it has started, at any remove: process number and command line."""
        return {pid: line for pid, line in _marked(self._mark).items() if pid != self.pid}

    def end(self, timeout: float, grace: float = GRACE_SECONDS) -> Ended:
        """Wait for its end, or kill it; its children have a moment more."""
        hung = False
        while True:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                break
            if self.seconds > timeout and not hung:
                hung = True
                self.signal(signal.SIGKILL, group=True)
            time.sleep(_POLL_SECONDS)
        seconds = self.seconds
        self._process.returncode = os.waitstatus_to_exitcode(status)
        survivors = self._survivors(0.0 if hung else grace)
        out, err = self.text(0), self.text(1)
        for kept in self._kept:
            kept.close()
        return Ended(self.command, self._process.returncode, out, err, seconds, usage.ru_maxrss / 1024, hung, survivors)

    def _survivors(self, grace: float) -> tuple[str, ...]:
        last, gone = time.monotonic() + grace, 0
        left: dict[int, str] = {}
        # A process between fork and exec shows no environment for a moment, so nobody has to be there twice.
        while gone < 2:
            left = self.children()
            gone = 0 if left else gone + 1
            if left and time.monotonic() >= last:
                break
            time.sleep(10 * _POLL_SECONDS)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return tuple(left.values())


def _drop_powers() -> None:
    """Take from this process, and all that it starts, what lets root write and read every file."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot drop a capability")


_PR_CAPBSET_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER = 24, 1, 2, 3


def _marked(mark: str) -> dict[int, str]:
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found


def jigsaw(
    *arguments: object,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    **how: object,
) -> Running:
    """Start a command of the command line, perhaps by another program; `how` as in `Running`."""
    words = [str(argument) for argument in arguments]
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in (environment or {}).items())
    shown = settings + shlex.join(["jigsaw", *words])
    program = [*wrapper, sys.executable, "-m", "jigsaw_opt", *words]
    return Running(program, shown, folder, environment, **how)  # type: ignore[arg-type]


def run_jigsaw(
    *arguments: object, folder: Path, timeout: float = 30.0, grace: float = GRACE_SECONDS, **how: object
) -> Ended:
    """A command of the command line from start to end."""
    return jigsaw(*arguments, folder=folder, **how).end(timeout, grace)  # type: ignore[arg-type]


def failure(ended: Ended, codes: Collection[int] = CODES) -> str:
    """What no command may show, whatever happens to it."""
    said = ended.err + ended.out
    ending = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    return first(
        f"no end: killed after {ended.seconds:.0f} s" if ended.hung else "",
        f"a traceback: {_last_line(said)}" if "Traceback (most recent call last)" in said else "",
        f"internal error: {_last_line(said)}" if "internal error" in said else "",
        f"{ending}, not {' or '.join(map(str, sorted(codes)))}: {_tail(ended.err)}" if ended.code not in codes else "",
        f"left behind: {ended.survivors[0]}" if ended.survivors else "",
    )


def _tail(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])[-_TAIL:]


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if "rror" in line] or [""]
    return lines[-1][:_TAIL]


def start_seconds(folder: Path) -> float:
    """What a solve takes that has nothing to do: starting and loading; measured once, the longest of three."""
    if not _starts:
        one = folder / "one-job.json"
        one.write_text(json.dumps(ONE_JOB))
        words = ("solve", one, "--solver", "greedy", "-q")
        _starts.extend(run_jigsaw(*words, folder=folder, timeout=120).seconds for _ in range(3))
        one.unlink()
    return max(_starts)


_starts: list[float] = []


def late(ended: Ended, limit: float, start: float) -> str:
    """Whether it took longer than its limit allows: 1.05 of it and a second, beside its start."""
    allowed = 1.05 * limit + 1 + start
    return f"{ended.seconds:.1f} s where {allowed:.1f} s are allowed" if ended.seconds > allowed else ""


def lasting(ended: Ended, seconds: float) -> str:
    """Whether it took longer than so many seconds."""
    return f"{ended.seconds:.1f} s, not {seconds:.1f} s at most" if ended.seconds > seconds else ""
