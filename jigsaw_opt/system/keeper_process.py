"""The program of a `Keeper`'s process: it keeps a folder and a sibling, and ends them with its parent.

Its parent holds the other end of its standard input, which ends with the parent however that comes about. It is run
as a file of its own, with nothing but the standard library, as it has to start fast.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Make the folder, and at the end of the input remove it and kill the sibling that was named last."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        folder = Path(tempfile.mkdtemp(prefix="jigsaw-"))
    except OSError as error:
        _tell("failed", f"cannot make a temporary folder: {error.strerror}")
        return
    sibling: int | None = None
    try:
        _tell("folder", str(folder))
        for line in sys.stdin:
            sibling = int(line)
    finally:
        if sibling is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(sibling, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _tell(what: str, value: str) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps({what: value}), flush=True)


if __name__ == "__main__":
    main()
