"""What the package logs, shown on standard error while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.cli.output import note

__all__ = ["shown_logs"]


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
