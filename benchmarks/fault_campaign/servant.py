"""A process that calls the package, replaced when it dies or does not answer."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .launch import HOME

__all__ = ["Servant", "servant"]

_ROOTS = os.pathsep.join((str(HOME), *(str(folder) for folder in list(Path(__file__).parents)[1:3])))


class Servant:
    """Answers the requests of `inside`."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        # Without the working folder on the path, which may hold another tree.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fault_campaign.inside"],
            env={**os.environ, "PYTHONPATH": _ROOTS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, name: str, *arguments: object, timeout: float) -> Any:
        """The answer; an object with ``raised`` where there was an exception, a death or no answer in time."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._line(time.monotonic() + timeout)
        if answer.endswith(b"\n"):
            return json.loads(answer)
        code = self._process.poll()
        self.close()
        self._start()
        return {"raised": f"no answer in {timeout:.0f} s" if code is None else f"the process ended with {code}"}

    def _line(self, last: float) -> bytes:
        assert self._process.stdout is not None
        parts, handle = [b""], self._process.stdout.fileno()
        while not parts[-1].endswith(b"\n"):
            if not select.select([handle], [], [], max(0.0, last - time.monotonic()))[0]:
                break
            parts.append(os.read(handle, 2**20))
            if not parts[-1]:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
                break
        return b"".join(parts)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def servant() -> Iterator[Servant]:
    """A servant for as long as the block."""
    found = Servant()
    try:
        yield found
    finally:
        found.close()
