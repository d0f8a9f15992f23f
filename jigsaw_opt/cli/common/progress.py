"""Progress on standard error, of one task or of the many of a sweep, with its engine and how it ends."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.output import ended, flush, note, tell
from jigsaw_opt.system.interrupts import on_interrupt
from jigsaw_opt.text import printable

if TYPE_CHECKING:
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.solvers.result import Event, Report
    from jigsaw_opt.sweeps.folder import SweepTables
    from jigsaw_opt.sweeps.task import SweepEngine

Found = TypeVar("Found")


def searched(
    arguments: argparse.Namespace,
    options: Options,
    search: Callable[[Report | None], Found],
    finish: Callable[[Found], int],
    limit: float | None = None,
) -> int:
    """Search with its progress shown, and return what `finish` makes of the find.

    A signal that comes meanwhile ends the search and nothing else: what was found is still written and printed.

    `limit`: seconds after which the search ends, for the line.
    """
    with on_interrupt(options.cancel.set):
        with _lines(arguments, "solving") as show:
            found = search(None if show is None else lambda event: show(_line(event, limit)))
        return finish(found)


@contextmanager
def logged_progress(arguments: argparse.Namespace, what: str) -> Iterator[None]:
    """Show what the executor logs of its progress in the block: a live line on a terminal, or lines."""
    with _lines(arguments, what) as show, nullcontext() if show is None else _shown(show):
        yield


@contextmanager
def _lines(arguments: argparse.Namespace, what: str) -> Iterator[Callable[[str], None] | None]:
    """Yield what shows a line of progress: alive on a terminal, one below the other with ``-v``; None where none is."""
    if arguments.quiet or not (arguments.verbose or sys.stderr.isatty()):
        yield None
    elif arguments.verbose:
        yield note
    else:
        from rich.console import Console

        with Console(stderr=True).status(what) as status:
            yield status.update


@contextmanager
def _shown(show: Callable[[str], None]) -> Iterator[None]:
    logger, handler = logging.getLogger("jigsaw_opt.executor"), logging.Handler()
    handler.emit = lambda record: show(printable(record.getMessage()))  # type: ignore[method-assign]
    handler.addFilter(lambda record: record.levelno == logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def _line(event: Event, limit: float | None) -> str:
    from jigsaw_opt.solvers.result import relative_gap

    clock = f"{event.seconds:8.2f}{'' if limit is None else f' of {limit:g}'} s"
    if event.objective is None:
        return f"{clock}  no plan yet  bound {event.bound}"
    gap = relative_gap(event.objective, event.bound)
    return f"{clock}  objective {event.objective}  bound {event.bound}  gap {100 * gap:.2f} %"


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
