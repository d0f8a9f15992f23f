"""What tests ask of processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_python(*words: object, folder: Path, path: str | Path = ROOT) -> tuple[str, str]:
    """Run Python in a folder, on one thread and with this package; what it prints, and what it tells of itself."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(path))), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, words)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{words}\n{ended.stderr}"
    return ended.stdout, ended.stderr


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
