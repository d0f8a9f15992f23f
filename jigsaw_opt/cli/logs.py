"""What the package logs, and former names that plug-ins use, shown on standard error while a command runs."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from jigsaw_opt.cli.output import note
from jigsaw_opt.system.former_names import FormerNameWarning

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
    """Show warnings and errors that are logged in the block, or `everything`, and uses of former names."""
    logger, handler = logging.getLogger("jigsaw_opt"), _Notes()
    level = logger.level
    handler.setLevel(logging.DEBUG if everything else logging.WARNING)  # progress is said by who asks for it
    logger.addHandler(handler)
    logger.setLevel(handler.level)
    try:
        with warnings.catch_warnings():
            show = warnings.showwarning

            def tell(
                message: Warning | str,
                category: type[Warning],
                filename: str,
                lineno: int,
                file: TextIO | None = None,
                line: str | None = None,
            ) -> None:
                if issubclass(category, FormerNameWarning):
                    note(f"warning: {message} ({filename})")
                else:
                    show(message, category, filename, lineno, file, line)

            warnings.showwarning = tell
            if not sys.warnoptions:
                warnings.simplefilter("default", FormerNameWarning)
            yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
