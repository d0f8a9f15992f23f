"""Printing: data to standard output, everything else to standard error; and what is said of files to be written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem

__all__ = ["emit", "flush", "print_error", "print_json", "print_problems", "print_table", "require_output"]

_SHOWN_PROBLEMS = 50


def print_json(value: object) -> None:
    """Print a value as JSON on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> None:
    """Print rows as columns; columns named in `right` are set to the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in set(right) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*("–" if cell is None else str(cell) for cell in row))
    # Into a file or a pipe nothing is cut to the width of a terminal.
    Console(width=None if sys.stdout.isatty() else 10_000, markup=False, highlight=False).print(table)


def print_error(error: JigsawError) -> None:
    """Print one clear error on standard error; an invalid input lists its problems."""
    if isinstance(error, InvalidInputError):
        print(f"error: {len(error.problems)} problem{'s' * (len(error.problems) > 1)}", file=sys.stderr)
        print_problems(error.problems)
    else:
        print(f"error: {error}", file=sys.stderr)


def print_problems(problems: Sequence[Problem]) -> None:
    """List problems on standard error, one a line."""
    for problem in problems[:_SHOWN_PROBLEMS]:
        print(f"  {problem}", file=sys.stderr)
    if len(problems) > _SHOWN_PROBLEMS:
        print(f"  and {len(problems) - _SHOWN_PROBLEMS} more (all with: jigsaw validate --json)", file=sys.stderr)


def require_output(path: Path | None, *inputs: str | Path | None) -> None:
    """Refuse an output file that cannot be written, before any work is done for it.

    Parameters
    ----------
    path
        The file, or None for standard output.
    *inputs
        What the command reads: files, or names of bundled instances.

    Raises
    ------
    UsageError
        It cannot be written, or is one of the inputs.
    """
    if path is not None:
        from jigsaw_opt.documents import require_writable

        require_writable(path, inputs)


def emit(data: bytes, path: Path | None) -> None:
    """Write `data` whole to a file, or to standard output where there is none."""
    if path is None:
        sys.stdout.write(data.decode())
        return
    from jigsaw_opt.documents import write_atomically

    write_atomically(path, data)
    print(f"wrote {path}", file=sys.stderr)


def flush() -> None:
    """Bring to standard output all that was printed.

    Raises
    ------
    OSError
        It takes no more, as on a full disk, or its reader has gone.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # What is left would fail once more at the end of the program.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
