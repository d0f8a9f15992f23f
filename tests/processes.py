"""What tests ask of processes that they start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["alive", "wait_for"]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds; a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process still runs."""
    if sys.platform != "linux":
        told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return told.stdout.strip()[:1] not in ("", "Z")
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
