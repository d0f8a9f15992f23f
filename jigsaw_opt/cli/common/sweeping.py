"""What `jigsaw bench` and `jigsaw simulate --sweep` have in common: the engine, progress, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import ended, flush, note, tell

if TYPE_CHECKING:
    from jigsaw_opt.sweeps.folder import SweepTables
    from jigsaw_opt.sweeps.task import SweepEngine

Rows: TypeAlias = "Sequence[Mapping[str, Any]]"

ADDRESS: Arguments = {"--address HOST:PORT": "address of the Ray cluster, or auto for the one that runs here"}


def engine_arguments(task: str) -> Arguments:
    """Return the arguments that say what runs the tasks.

    `task`: what they are called.
    """
    return {
        "--jobs N": f"{task} at once, on this machine (default: 1)",
        "--engine local|ray = local": "processes of this machine, or a Ray cluster",
        **ADDRESS,
    }


def engine_of(arguments: argparse.Namespace) -> SweepEngine:
    """Return the engine that the arguments ask for."""
    from jigsaw_opt.sweeps.engines import sweep_engine

    cores = getattr(arguments, "threads", 1)
    return sweep_engine(arguments.engine, jobs=arguments.jobs, address=arguments.address, cores=cores)


def tell_sweep(arguments: argparse.Namespace, found: SweepTables, show: Callable[[Rows], None]) -> int:
    """Print the summary, say what was written, and return the exit code: that of an interrupt if runs are missing."""
    from jigsaw_opt.sweeps.folder import ROWS, TABLES

    tell(arguments.json, found.summary, lambda: show(found.summary["cells"]))
    note(f"wrote {arguments.output}/{ROWS}, {', '.join(TABLES)}")
    flush()
    runs, finished = found.summary["runs"], found.summary["finished"]
    kept = f"{finished} of {runs} runs are kept in {arguments.output / ROWS}; the same command goes on"
    return ended(finished < runs, kept)


def reporter(
    arguments: argparse.Namespace, line: Callable[[Mapping[str, Any]], str]
) -> Callable[[Mapping[str, Any], int, int], None]:
    """Return a function that prints a line for each finished task on standard error, unless nobody looks.

    Takes the row, how many tasks are finished, and how many there are.

    `line`: makes the line from a row.
    """
    quiet = arguments.quiet or not (getattr(arguments, "verbose", False) or sys.stderr.isatty())

    def report(row: Mapping[str, Any], finished: int, count: int) -> None:
        if not quiet:
            note(f"[{finished}/{count}] {line(row)}")

    return report


def came_to(row: Mapping[str, Any]) -> str:
    """Return in words what a simulation has come to."""
    return row["error"] or f"mean completion {row['mean_completion_h']:.3f} h in {row['seconds']:.1f} s"
