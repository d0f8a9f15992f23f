"""The program of a `Keeper`'s process: it keeps a folder, a child and a sibling, and ends them with its parent.

Its parent holds the other end of its standard input, which ends with the parent however that comes about. It is run
as a file of its own, with nothing but the standard library, as it has to start fast.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

LOG = "log"
"""Name of the file in the folder that gets what the child prints."""


def main() -> None:
    """Make the folder and follow orders until there are no more."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # A function, as the child would inherit that a signal is ignored.
        signal.signal(signal.Signals[name], lambda *_: None)
    try:
        folder = Path(tempfile.mkdtemp(prefix="jigsaw-"))
    except OSError as error:
        _tell("failed", f"cannot make a temporary folder: {error.strerror}")
        return
    try:
        _tell("folder", str(folder))
        _follow(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _follow(folder: Path) -> None:
    """Start the child and send it signals, as told; at the end of the orders it is killed, and the sibling with it."""
    child: subprocess.Popen[bytes] | None = None
    sibling: int | None = None
    try:
        for line in sys.stdin:
            what, value = json.loads(line)
            if what == "start":
                child = _started(value, folder)
            elif what == "end too":
                sibling = value
            elif child is not None:
                child.send_signal(value)
    finally:
        if sibling is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(sibling, signal.SIGKILL)
        if child is not None:
            child.kill()
            child.wait()


def _started(command: list[str], folder: Path) -> subprocess.Popen[bytes] | None:
    try:
        with (folder / LOG).open("wb") as log:
            child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    except OSError as error:
        _tell("failed", f"cannot start {command[0]}: {error.strerror}")
        return None
    threading.Thread(target=lambda: _tell("ended", child.wait()), daemon=True).start()
    return child


def _tell(what: str, value: str | int) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps([what, value]), flush=True)


if __name__ == "__main__":
    main()
