"""The rows of a sweep on disk: a line of JSON each, safe as soon as it is appended."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from jigsaw_opt.errors import InvalidInputError, JigsawError, Problem

__all__ = ["Record"]

_START = b'{"key"'


class Record:
    """The rows that are there, by key; a context manager that keeps other processes from writing.

    Parameters
    ----------
    path
        The file, made where there is none. Half a line at its end, left by a killed process, is cut off.

    Raises
    ------
    JigsawError
        It cannot be written, or another process is writing it.
    InvalidInputError
        Lines that are no rows, each of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise JigsawError(f"cannot write {path}: {error.strerror}") from error
        with ExitStack() as undo:
            undo.callback(os.close, self._file)
            self._lock()
            self.rows: dict[str, dict[str, Any]] = self._read()
            undo.pop_all()

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row; when this returns, it survives a crash of the machine.

        Raises
        ------
        JigsawError
            It cannot be written.
        """
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
            raise JigsawError(f"cannot write {self.path}: {error.strerror}") from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JigsawError(f"another process is writing {self.path}") from error

    def _read(self) -> dict[str, dict[str, Any]]:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        rows = [_row(line) for line in whole.splitlines()]
        wrong = [number for number, row in enumerate(rows, 1) if row is None]
        if not _may_be_cut(data[len(whole) :]):
            wrong.append(len(rows) + 1)
        if wrong:
            hint = "delete the line, and its task runs again"
            raise InvalidInputError([Problem(f"{self.path}:{number}", "is not a row", hint) for number in wrong])
        os.ftruncate(self._file, len(whole))
        _sync_folder(self.path.parent)
        return {row["key"]: row for row in rows if row is not None}


def _may_be_cut(rest: bytes) -> bool:
    """Whether what follows the last line is the beginning of a row, and no file of another kind."""
    return rest[: len(_START)] == _START[: len(rest)]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("key"), str) else None


def _sync_folder(folder: Path) -> None:
    """Make the file's name as durable as its lines."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
