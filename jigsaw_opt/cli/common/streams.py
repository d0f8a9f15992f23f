"""The standard streams of the program: open, able to print any name, and no reason to fail for want of messages."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from codecs import register_error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from jigsaw_opt.cli.common.output import note

_ESCAPE = "jigsaw.escape"


def prepare() -> None:
    """Make the standard streams fit for whatever is printed.

    One that was closed leads to nothing, or the next file that is opened would take its number. Standard output names
    itself in its errors, and writes characters that its encoding does not have as JSON does, so that JSON stays JSON.
    What standard error does not take, as on a full disk, is dropped: messages are no part of the result.
    """
    for number in range(3):
        _open(number)
    register_error(_ESCAPE, _escaped)
    sys.stdout = _text(_Named(1, "w", closefd=False), sys.stdout, _ESCAPE, os.isatty(1))
    sys.stderr = _text(_Forgiving(2, "w", closefd=False), sys.stderr, "backslashreplace", True)


def _text(raw: io.FileIO, before: TextIO | None, errors: str, line_buffering: bool) -> TextIO:
    encoding = None if before is None else before.encoding
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=line_buffering)


def _open(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        # The lowest number that is free is this one, as those below are open.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


class _Named(io.FileIO):
    """Standard output, whose errors say that they are its own."""

    def write(self, data, /):  # type: ignore[no-untyped-def]
        """Write, or say what could not be written to."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from error


class _Forgiving(io.FileIO):
    """A file that takes everything and keeps what it can."""

    def write(self, data, /):  # type: ignore[no-untyped-def]
        """Write, or drop what cannot be written."""
        with suppress(OSError):
            return super().write(data)
        return len(data)


class _Notes(logging.Handler):
    """Says each record in one line, and a warning once: a policy that is started again and again repeats its own."""

    def __init__(self) -> None:
        super().__init__()
        self._warned: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        told = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.levelno == logging.WARNING:
            if told in self._warned:
                return
            self._warned.add(told)
        note(told)


@contextmanager
def shown_logs(everything: bool) -> Iterator[None]:
    """Show warnings and errors that are logged in the block, or `everything`."""
    logger, handler = logging.getLogger("jigsaw_opt"), _Notes()
    level = logger.level
    handler.setLevel(logging.DEBUG if everything else logging.WARNING)  # progress is said by who asks for it
    logger.addHandler(handler)
    logger.setLevel(handler.level)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
