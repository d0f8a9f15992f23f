"""What the package logs, shown on standard error while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from jigsaw_opt.cli.output import note

__all__ = ["shown_logs"]


class _Notes(logging.Handler):
    """Says each record in one line."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"{record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def shown_logs(everything: bool) -> Iterator[None]:
    """Show warnings and errors that are logged in the block, or `everything`."""
    logger, handler = logging.getLogger("jigsaw_opt"), _Notes()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if everything else logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
