"""What measurements share: the measured data, CPU seconds of a call, and tables in Markdown that grow row by row."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from jigsaw_opt.simulation.engine import Simulation
    from jigsaw_opt.simulation.records import SimulationOutcome

Found = TypeVar("Found")


def shared(*parts: str) -> Path:
    """A path in the measured data, which ``JIGSAW_SHARED`` has in ``data/``; where it is missing, exit code 2."""
    found = shared_if_there(*parts)
    if found is None:
        print(f"no {_located(*parts)}; JIGSAW_SHARED says where data/ is", file=sys.stderr)
        raise SystemExit(2)
    return found


def shared_if_there(*parts: str) -> Path | None:
    """A path in the measured data, for what goes on without."""
    path = _located(*parts)
    return path if path.exists() else None


def _located(*parts: str) -> Path:
    return Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"), "data", *parts)


def timed(call: Callable[[], Found]) -> tuple[Found, float]:
    """What a call returns, and its CPU seconds, those of its finished children included."""
    began = _cpu_seconds()
    found = call()
    return found, _cpu_seconds() - began


def _cpu_seconds() -> float:
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def outcome_of(simulation: Simulation) -> SimulationOutcome:
    """What a simulation gives that runs to its end."""
    simulation.run()
    return simulation.close()


def line(cells: Iterable[object]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def print_table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table, each row once it is there."""
    print(f"{line(heads)}\n|{'---|' * len(heads)}", flush=True)
    for row in rows:
        print(line(row), flush=True)
