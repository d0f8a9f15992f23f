"""Bundled workloads by name: drawn, not traced, so that a first simulation needs no file.

``day`` has 60 jobs of 1 to 4 GPUs that come within a day, ``week`` 300 of 1 to 8 within a week. Times between
submissions are exponential with means of 1300 and 2000 s, durations lognormal around 22 and 33 min.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["bundled_workload", "workload_names"]

_FOLDER = Path(__file__).parent / "data" / "workloads"


def workload_names() -> tuple[str, ...]:
    """Return their names, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.csv")))


def bundled_workload(name: str) -> Path | None:
    """Return the file of a bundled workload; None where there is none of that name."""
    return _FOLDER / f"{name}.csv" if name in workload_names() else None
