"""What tests ask of processes that they start."""

from __future__ import annotations

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
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
