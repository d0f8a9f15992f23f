"""The progress stream on a terminal."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.text import printable

if TYPE_CHECKING:
    from jigsaw_opt.solvers.result import Event, Report


def add_progress(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the options ``-q`` and ``-v``.

    `more`: what ``-v`` shows besides.
    """
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help=f"progress as lines, also where there is no terminal{more}"
    )


@contextmanager
def progress(quiet: bool, verbose: bool, limit: float | None = None) -> Iterator[Report | None]:
    """Yield a consumer of progress reports: a live line on a terminal, plain lines if `verbose`, else None.

    `limit`: seconds after which the solve ends, for the line.
    """
    if quiet or not (verbose or sys.stderr.isatty()):
        yield None
    elif verbose:
        yield lambda event: note(_line(event, limit))
    else:
        from rich.console import Console

        with Console(stderr=True).status("solving") as status:
            yield lambda event: status.update(_line(event, limit))


@contextmanager
def logged_progress(arguments: argparse.Namespace, what: str) -> Iterator[None]:
    """Show what the executor logs of its progress in the block: a live line on a terminal, or lines."""
    if arguments.quiet or not (arguments.verbose or sys.stderr.isatty()):
        yield
    elif arguments.verbose:
        with _shown(note):
            yield
    else:
        from rich.console import Console

        with Console(stderr=True).status(what) as status, _shown(status.update):
            yield


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
