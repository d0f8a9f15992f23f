"""Commands in processes of their own: limited, measured, never outlived by a child, and judged by one contract."""

from __future__ import annotations

import ctypes
import json
import os
import re
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
from functools import cache
from pathlib import Path
from typing import Any

import jigsaw_opt

from .contract import FAULT, Count, Trial, first
from .documents import ONE_JOB, written

HOME = Path(jigsaw_opt.__file__).parents[1]
"""The tree whose code is tried, here and in every process."""
CODES = frozenset({0, 2, 3, 4, 5, 6, 7, 130})
"""Every documented exit code that is no internal error."""
GIBIBYTE = 2**30
PATIENCE, GRACE = 60.0, 3.0
"""Seconds for a command, and for its children to notice its end."""
_MARK = "JIGSAW_FAULT_CAMPAIGN"
_POLL_SECONDS = 0.005
_TAIL, _MOST_SAID = 300, 20_000
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys; newline and tab are layout."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended: its exit code, ``-N`` for signal N, and the children that outlived it."""

    command: str
    code: int
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    mebibytes: float = 0.0
    hung: bool = False
    survivors: tuple[str, ...] = ()


class Running:
    """A process under way, in a session of its own; `prepare` is called in it before the program starts."""

    def __init__(
        self,
        arguments: Sequence[str],
        shown: str = "",
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        memory: int | None = 8 * GIBIBYTE,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self.command, self._mark = shown or shlex.join(arguments), uuid.uuid4().hex
        self._kept = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115

        def limits() -> None:
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if prepare is not None:
                prepare()

        self.started = time.monotonic()
        self._process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(HOME), **(environment or {}), _MARK: self._mark},
            stdin=subprocess.DEVNULL,
            stdout=self._kept[0],
            stderr=self._kept[1],
            preexec_fn=limits,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def text(self, stream: int = 1) -> str:
        """What it has written so far to standard output (0) or standard error (1)."""
        handle = self._kept[stream].fileno()
        return os.pread(handle, os.fstat(handle).st_size, 0).decode(errors="surrogateescape")

    def signal(self, number: int, group: bool = False) -> None:
        """Send a signal to it, or to all of its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number) if group else os.kill(self.pid, number)

    def wait(self, holds: Callable[[], bool], timeout: float = PATIENCE) -> bool:
        """Wait until something holds; says whether it did before the end of the process and in time."""
        alive = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.pid, alive) is None and self.seconds < timeout:
            if holds():
                return True
            time.sleep(_POLL_SECONDS)
        return holds()

    def sleep(self, seconds: float) -> None:
        """Wait so long, or to its end."""
        last = self.seconds + seconds
        self.wait(lambda: self.seconds >= last)

    def children(self) -> dict[int, str]:
        """All living processes that it has started, at any remove: process number and command line."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(folder.name) != self.pid and self._mark.encode() in (folder / "environ").read_bytes():
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = line.decode(errors="replace")
        return found

    def end(self, timeout: float = PATIENCE, grace: float = GRACE) -> Ended:
        """Wait for its end, or kill it; its children have a moment more."""
        hung = False
        while not (done := os.wait4(self.pid, os.WNOHANG))[0]:
            if self.seconds > timeout and not hung:
                hung = True
                self.signal(signal.SIGKILL, group=True)
            time.sleep(_POLL_SECONDS)
        seconds, code = self.seconds, os.waitstatus_to_exitcode(done[1])
        self._process.returncode = code
        survivors, out, err = self._survivors(0.0 if hung else grace), self.text(0), self.text(1)
        for kept in self._kept:
            kept.close()
        return Ended(self.command, code, out, err, seconds, done[2].ru_maxrss / 1024, hung, survivors)

    def _survivors(self, grace: float) -> tuple[str, ...]:
        last, gone = time.monotonic() + grace, 0
        left: dict[int, str] = {}
        # A process between fork and exec shows no environment for a moment, so nobody has to be there twice.
        while gone < 2 and (not left or time.monotonic() < last):
            left = self.children()
            gone = 0 if left else gone + 1
            time.sleep(10 * _POLL_SECONDS)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return tuple(left.values())


def drop_powers() -> None:
    """Take from this process, and all that it starts, what lets root write and read every file."""
    drop, capabilities = 24, (1, 2, 3)  # PR_CAPBSET_DROP; DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
    if os.geteuid() == 0 and any(ctypes.CDLL(None).prctl(drop, one, 0, 0, 0) for one in capabilities):
        raise OSError("cannot drop a capability")


def jigsaw(*arguments: object, folder: Path, environment: Mapping[str, str] | None = None, **how: Any) -> Running:
    """Start a command of the command line; `how` as in `Running`."""
    words = [str(argument) for argument in arguments]
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in (environment or {}).items())
    program = [sys.executable, "-m", "jigsaw_opt", *words]
    return Running(program, settings + shlex.join(["jigsaw", *words]), folder, environment, **how)


def tried(
    fault: str,
    folder: Path,
    words: Sequence[object],
    codes: Collection[int] = CODES,
    holds: Callable[[Ended], str] = lambda ended: "",
    timeout: float = PATIENCE,
    how: str = "",
    files: tuple[Path, ...] = (),
    **running: Any,
) -> Trial:
    """One command from start to end, judged by the contract and by what must hold besides."""
    ended = jigsaw(*words, folder=folder, **running).end(timeout)
    return judged(fault, folder, ended, codes, holds(ended), how=how, files=files)


def judged(
    fault: str,
    folder: Path,
    ended: Ended,
    codes: Collection[int],
    *wrong: str,
    how: str = "",
    files: tuple[Path, ...] = (),
    counts: Mapping[Count, int] = FAULT,
) -> Trial:
    """What came of a command: the contract, nothing half-written, and what is wrong besides."""
    left = [path.name for path in folder.glob(".*")]
    said = first(*wrong, failure(ended, codes), f"half a file left: {left[0]}" if left else "")
    return Trial(fault, said, f"{ended.command} {how}".strip(), ended.seconds, ended.mebibytes, counts, files)


def failure(ended: Ended, codes: Collection[int] = CODES) -> str:
    """What no command may show, whatever happens to it."""
    said = ended.err + ended.out
    ending = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
    tail = " / ".join(ended.err.strip().splitlines()[-3:])[-_TAIL:]
    last = [*(line for line in said.splitlines() if "rror" in line), ""][-2:][0][:_TAIL]
    return first(
        f"no end: killed after {ended.seconds:.0f} s" if ended.hung else "",
        f"a traceback: {last}" if "Traceback (most recent call last)" in said else "",
        f"internal error: {last}" if "internal error" in said else "",
        "an ignored exception" if "Exception ignored" in said or "lost sys.stderr" in said else "",
        f"{ending}, not {' or '.join(map(str, sorted(codes)))}: {tail}" if ended.code not in codes else "",
        f"left behind: {ended.survivors[0]}" if ended.survivors else "",
        raw(said),
        f"{len(ended.err)} characters of complaint" if len(ended.err) > _MOST_SAID else "",
    )


def raw(text: str) -> str:
    """The first character of a text that a terminal would obey."""
    found = _RAW.search(text)
    return f"a raw {found.group()!a} in {text[max(0, found.start() - 20) : found.end() + 20]!a}" if found else ""


def late(ended: Ended, limit: float, start: float) -> str:
    """Whether it took longer than its limit allows: 1.05 of it and a second, beside its start."""
    allowed = 1.05 * limit + 1 + start
    return f"{ended.seconds:.1f} s where {allowed:.1f} s are allowed" if ended.seconds > allowed else ""


@cache
def start_seconds(folder: Path) -> float:
    """What a solve takes that has nothing to do: starting and loading; the longest of three."""
    one = written(ONE_JOB, folder / "one-job.json")
    words = ("solve", one, "--solver", "greedy", "-q")
    return max(jigsaw(*words, folder=folder).end(120).seconds for _ in range(3))


def read(path: Path) -> Any:
    """A document in a file, or nothing where it is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
