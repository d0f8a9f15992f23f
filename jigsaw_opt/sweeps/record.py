"""The rows of a sweep on disk: a line of JSON each, safe as soon as it is appended."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from jigsaw_opt.documents.file_bytes import read_file, require_alone, unwritable
from jigsaw_opt.documents.parsing import collection_paused, parsed
from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem, UsageError
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.text import Tell

IsRow: TypeAlias = Callable[[Mapping[str, Any]], bool]
_START = b'{"key"'
_HINT = "take another folder, or delete the line, and its task runs again"
_LARGEST = 1e100
"""Largest absolute value of a number: means and ratios of many are finite too."""


class Record:
    """The rows that are there, by key; a context manager that keeps other processes from writing.

    `path`: the file, made where there is none. Half a line at its end, left by a killed process, is cut off. `is_row`:
    whether an object with a key has the values that its readers count on; those that they do not know may be any.
    """

    def __init__(self, path: Path, is_row: IsRow = lambda _row: True) -> None:
        self.path, self._is_row = path, is_row
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise unwritable(path, error) from error
        with ExitStack() as undo:
            undo.callback(os.close, self._file)
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise UsageError(f"cannot write {path}: it is no regular file", code="unwritable", path=str(path))
            require_alone(self._file, path)
            self.rows: dict[str, dict[str, Any]] = self._read()
            undo.pop_all()

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; when this returns, it survives a crash of the machine."""
        # The key first: by it half a line is known for what it is.
        line = json.dumps({"key": row["key"], **row}, ensure_ascii=False).encode() + b"\n"
        try:
            # One call, so that an interrupt falls before or after the line, not within.
            if os.write(self._file, line) != len(line):
                raise JigsawError(f"cannot write {self.path}: the disk is full")
            # At once, so that an interrupt while the disk is slow leaves no row that is written and not known.
            self.rows[row["key"]] = dict(row)
            os.fsync(self._file)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def _read(self) -> dict[str, dict[str, Any]]:
        data = read_file(self.path)
        rows = _rows(self.path, data, self._is_row)
        os.ftruncate(self._file, data.rfind(b"\n") + 1)
        _sync_folder(self.path.parent)
        return rows


def read_rows(path: Path, is_row: IsRow, tell: Tell) -> dict[str, dict[str, Any]]:
    """Return the rows of a record that nobody goes on with, by key; the file stays as it is.

    `tell`: receives a sentence where the last line is cut off, so that its run is missing.
    """
    data = read_file(path)
    rows = _rows(path, data, is_row)
    if data and not data.endswith(b"\n"):
        tell(f"the last line of {path} is cut off, and its run is left out")
    return rows


def _rows(path: Path, data: bytes, is_row: IsRow) -> dict[str, dict[str, Any]]:
    """Return the rows of all whole lines; the last one may be cut."""
    rows: dict[str, dict[str, Any]] = {}
    report = Report()
    with collection_paused():
        for number, line in enumerate(BytesIO(data), 1):
            row = _row(line, is_row) if line.endswith(b"\n") else None
            if row is not None:
                if rows.setdefault(row["key"], row) != row:
                    told = "is another row of the same run, with other values"
                    report.note(Problem(f"{path}:{number}", told, _HINT, code="duplicate-name"))
            elif line.endswith(b"\n") or not _may_be_cut(line):
                report.note(Problem(f"{path}:{number}", "is not a row", _HINT, code="malformed"))
    report.raise_if_any()
    return rows


def _row(line: bytes, is_row: IsRow) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] = parsed(line, "$", lambda _tree, _report: None)
    except InvalidInputError:
        return None
    return row if isinstance(row.get("key"), str) and is_row(row) else None


def is_number(value: object) -> bool:
    """Return whether a value of a row is a number that can be reckoned with."""
    return isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST


def _may_be_cut(rest: bytes) -> bool:
    """Return whether what follows the last line is the beginning of a row, and no file of another kind."""
    return rest[: len(_START)] == _START[: len(rest)]


def _sync_folder(folder: Path) -> None:
    """Make the file's name as durable as its lines."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
