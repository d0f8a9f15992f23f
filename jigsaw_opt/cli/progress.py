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
def progress(quiet: bool, verbose: bool) -> Iterator[Report | None]:
    """A consumer of the progress stream: one live line on a terminal, plain lines if `verbose`, else None."""
    if quiet or not (verbose or sys.stderr.isatty()):
        yield None
    elif verbose:
        yield lambda event: note(_line(event))
    else:
        from rich.console import Console

        with Console(stderr=True).status("solving") as status:
            yield lambda event: status.update(_line(event))


def _line(event: Event) -> str:
    from jigsaw_opt.solvers.result import relative_gap

    if event.objective is None:
        return f"{event.seconds:8.2f} s  no plan yet  bound {event.bound}"
    gap = relative_gap(event.objective, event.bound)
    return f"{event.seconds:8.2f} s  objective {event.objective}  bound {event.bound}  gap {100 * gap:.2f} %"
