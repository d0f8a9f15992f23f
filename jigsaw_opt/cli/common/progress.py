"""The progress stream on a terminal."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.system.interrupts import on_interrupt
from jigsaw_opt.text import printable

if TYPE_CHECKING:
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.solvers.result import Event, Report

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
