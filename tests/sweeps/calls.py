"""Functions that the tests' tasks call in other processes, and a driver that a test can kill."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.sweeps.engine_local import LocalEngine
from jigsaw_opt.sweeps.record import Record
from jigsaw_opt.sweeps.simulations import measure
from jigsaw_opt.sweeps.task import SweepTask, sweep


def note(folder: Path, word: str) -> None:
    """Keep that a call was made, and in which process."""
    handle = os.open(folder / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{word} {os.getpid()}\n".encode())
    os.close(handle)


def calls(folder: Path) -> list[list[str]]:
    file = folder / "calls"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def squared(folder: Path, number: int) -> dict[str, Any]:
    note(folder, str(number))
    return {"square": number * number}


def squared_once_open(folder: Path, number: int) -> dict[str, Any]:
    """Waits until the test has opened the gate."""
    note(folder, str(number))
    while not (folder / "gate").exists():
        time.sleep(0.01)
    return {"square": number * number}


def measured_once_open(folder: Path) -> Callable[[Setting, bool], dict[str, Any]]:
    """A simulation that begins when the test has opened the gate."""

    def measured(setting: Setting, with_jobs: bool = False) -> dict[str, Any]:
        note(folder, f"{setting.policy and setting.policy.name}-{setting.seed}")
        while not (folder / "gate").exists():
            time.sleep(0.01)
        return measure(setting, with_jobs)

    return measured


def killed(folder: Path, times: int) -> dict[str, Any]:
    """Dies as by the system's want of memory, in its first so many calls."""
    note(folder, "killed")
    if len([call for call in calls(folder) if call[0] == "killed"]) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": -1}


def broken(folder: Path) -> dict[str, Any]:
    note(folder, "broken")
    sys.exit(3)


def gated_tasks(folder: Path) -> list[SweepTask]:
    """Two that end at once, then two that wait for the gate."""
    functions = (squared, squared, squared_once_open, squared_once_open)
    return [SweepTask(f"{n}", function, (folder, n), {"number": n}) for n, function in enumerate(functions)]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, lambda *_: None)
    with Record(place / "rows.jsonl") as record:
        sweep(gated_tasks(place), LocalEngine(jobs=2), record)
