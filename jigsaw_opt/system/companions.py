"""Objects in processes of their own that answer what they are asked, whether they live on this machine or elsewhere.

Unlike processes of `multiprocessing`, those of this machine never run the script of the user again, so that it needs no
guard, and may be started while other threads run. They end with this process, however that comes about.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any, Protocol, TypeVar

from jigsaw_opt.errors import JigsawError

Maker = Callable[[], Any]
"""Makes the object: a class or a function that a module holds."""
_GRACE_SECONDS = 1.0
_TRIES = 10
"""How often what is told is pickled at most, where other threads change it meanwhile."""

T = TypeVar("T")


class LostCompanionError(JigsawError):
    """A companion has ended, or its object has raised an exception, whose text this has."""


class Companion(Protocol):
    """An object elsewhere."""

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the object and return its answer.

        Raises
        ------
        LostCompanionError
            There is no answer any more.
        """

    def end(self) -> None:
        """End it at once; whoever waits for an answer has the error. From any thread, any number of times."""


def retried(send: Callable[[], T]) -> T:
    """Return what a call returns that pickles objects, made anew where a thread fills a cache of theirs meanwhile."""
    for _ in range(_TRIES - 1):
        with suppress(RuntimeError):
            return send()
    return send()


class LocalCompanion:
    """An object in a process of this machine. What its making comes to, the first question is answered with.

    It has a session of its own, so that no signal to a terminal or a group reaches it.
    """

    def __init__(self, make: Maker) -> None:
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        try:
            self._connection, there = Pipe()
            program = _PROGRAM.format(path=[*map(str, sys.path)], descriptor=there.fileno())
            with there:
                self._process = subprocess.Popen(
                    # With the path of imports of this process, and without the folder that `-c` would look into first.
                    [sys.executable, *flags, "-P", "-c", program],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[there.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            raise LostCompanionError(f"no process can begin: {error}") from error
        self._made = False
        self._send(make)

    @property
    def number(self) -> int:
        """Return the number of its process."""
        return self._process.pid

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the object and return its answer."""
        if not self._made:
            self._answer()
            self._made = True
        self._send((name, arguments))
        return self._answer()

    def end(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def _send(self, message: object) -> None:
        try:
            retried(lambda: self._connection.send(message))
        except OSError as error:
            raise self._lost() from error
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            self.end()
            raise LostCompanionError(f"what it was to be told cannot go to another process: {error}") from error

    def _answer(self) -> Any:
        try:
            failure, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        if failure is not None:
            self.end()
            raise LostCompanionError(failure)
        return answer

    def _lost(self) -> LostCompanionError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        self.end()
        code = self._process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return LostCompanionError(f"its process {how}")


_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from jigsaw_opt.system.companion_process import main; main({descriptor})"
)
