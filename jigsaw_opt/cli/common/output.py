"""Printing: data to standard output, everything else to standard error; and what is said of files to be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem, UsageError
from jigsaw_opt.system.interrupts import INTERRUPTED, keeps
from jigsaw_opt.text import counted, json_text, printable

_SHOWN_PROBLEMS = 50


def print_json(value: object) -> None:
    """Print a value as JSON on standard output."""
    print(json_text(value, indent=2, allow_nan=True))


def tell(as_json: bool, document: object, show: Callable[[], None]) -> None:
    """Print what was found: as JSON, or as `show` does for people."""
    if as_json:
        print_json(document)
    else:
        show()


def note(message: str) -> None:
    """Say something on standard error, in one line whatever names are in it."""
    print(printable(message), file=sys.stderr, flush=True)


def answer(question: str) -> str:
    """Return a line from the terminal; the question goes to standard error, as data may go to standard output."""
    print(printable(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = (), stderr: bool = False
) -> None:
    """Print rows as columns.

    `rows`: cells of each row; None is shown as a dash. `right`: names of the columns that are set to the right.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in set(right) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*("–" if cell is None else printable(str(cell)) for cell in row))
    # Into a file or a pipe nothing is cut to the width of a terminal.
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 10_000
    Console(width=width, stderr=stderr, markup=False, emoji=False, highlight=False).print(table)


def print_error(error: JigsawError) -> None:
    """Print one clear error on standard error; an invalid input lists its problems."""
    if isinstance(error, InvalidInputError):
        source = "".join(f" in {name}" for name in getattr(error, "__notes__", ()))
        note(f"error: {counted(len(error.problems), 'problem')}{source}")
        print_problems(error.problems)
    else:
        first, *more = error.args if isinstance(error, UsageError) else (error,)
        note(f"error: {first}")
        _list(more, "")


def print_problems(problems: Sequence[Problem]) -> None:
    """List problems on standard error, one a line; where all are of one document, another command has more."""
    of_document = all(problem.path.startswith("$") for problem in problems)
    _list(problems, " (all with: jigsaw validate --json)" if of_document else "")


def _list(lines: Sequence[object], where: str) -> None:
    """Print the first lines, and the last one, which may say that there are still more."""
    for line in lines[:_SHOWN_PROBLEMS]:
        note(f"  {line}")
    if len(lines) > _SHOWN_PROBLEMS:
        note(f"  and {len(lines) - _SHOWN_PROBLEMS} more{where}, at last:")
        note(f"  {lines[-1]}")


def ended(interrupted: bool, kept: str, code: int = 0) -> int:
    """Return the exit code of a command that computed; after a signal, say what it kept."""
    if not interrupted:
        return code
    note(f"interrupted: {kept}")
    return INTERRUPTED


def goes_on_from(path: Path) -> None:
    """Let an interrupt before the work begins say what there is to go on from, if there is anything."""
    from jigsaw_opt.documents import exists

    if exists(path):
        keeps(printable(f"what was kept before in {path} stays; the same command goes on"))


def require_output(path: Path | None, *inputs: str | Path | None, outputs: Sequence[Path | None] = ()) -> None:
    """Refuse an output file that cannot be written, before any work is done for it.

    `path`: the file, or None for standard output. `outputs`: the other files of the command.
    """
    if path == Path("-"):
        raise UsageError("'-' is standard output, and this goes to a file: name one", code="unwritable", path="-o")
    if path is not None:
        from jigsaw_opt.documents import require_writable

        require_writable(path, inputs, outputs)


def emit(data: bytes, path: Path | None) -> None:
    """Write data to a file as a whole, or to standard output.

    `path`: the file; None for standard output.
    """
    if path is None:
        sys.stdout.write(data.decode())
        return
    from jigsaw_opt.documents import write_atomically

    write_atomically(path, data)
    note(f"wrote {path}")


def flush() -> None:
    """Bring to standard output all that was printed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # What is left would fail once more at the end of the program.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
