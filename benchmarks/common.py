"""What measurements share: the measured data, CPU seconds of a call, and tables in Markdown that grow row by row."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time
from typing import TypeVar

from jigsaw_opt.problem import Efficiency, Model

Found = TypeVar("Found")


def shared(*parts: str) -> Path:
    """A path in the measured data, which ``JIGSAW_SHARED`` has in ``data/``; where it is missing, exit code 2."""
    path = Path(os.environ.get("JIGSAW_SHARED", Path(__file__).parents[2] / "shared"), "data", *parts)
    if not path.exists():
        print(f"no {path}; JIGSAW_SHARED says where data/ is", file=sys.stderr)
        raise SystemExit(2)
    return path


def timed(call: Callable[[], Found]) -> tuple[Found, float]:
    """What a call returns, and its CPU seconds, those of its finished children included."""
    began = _cpu_seconds()
    found = call()
    return found, _cpu_seconds() - began


def _cpu_seconds() -> float:
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def with_noise(model: Model, scale: float | None) -> Model:
    """A model whose buckets all weigh the same and have this noise scale, in batches of a worker; None for unknown."""
    own = None if scale is None else Efficiency((round(1000 * scale),) * model.depth, (1,) * model.depth)
    return replace(model, efficiency=own)


def line(cells: Iterable[object]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def print_table(heads: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table, each row once it is there."""
    print(f"{line(heads)}\n|{'---|' * len(heads)}", flush=True)
    for row in rows:
        print(line(row), flush=True)
