"""The progress stream on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jigsaw_opt.cli.output import note

if TYPE_CHECKING:
    from jigsaw_opt.solvers.result import Event, Report

__all__ = ["progress"]


@contextmanager
def progress(quiet: bool, verbose: bool, limit: float | None = None) -> Iterator[Report | None]:
    """Yield a consumer of progress reports: a live line on a terminal, plain lines if `verbose`, else None.

    Parameters
    ----------
    quiet, verbose
        The options of the command line.
    limit
        Seconds after which the solve ends, for the line.
    """
    if quiet or not (verbose or sys.stderr.isatty()):
        yield None
    elif verbose:
        yield lambda event: note(_line(event, limit))
    else:
        from rich.console import Console

        with Console(stderr=True).status("solving") as status:
            yield lambda event: status.update(_line(event, limit))


def _line(event: Event, limit: float | None) -> str:
    from jigsaw_opt.solvers.result import relative_gap

    clock = f"{event.seconds:8.2f}{'' if limit is None else f' of {limit:g}'} s"
    if event.objective is None:
        return f"{clock}  no plan yet  bound {event.bound}"
    gap = relative_gap(event.objective, event.bound)
    return f"{clock}  objective {event.objective}  bound {event.bound}  gap {100 * gap:.2f} %"
