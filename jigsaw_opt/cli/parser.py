"""Reading the command line: argparse, with what users have typed made printable in its messages."""

from __future__ import annotations

import argparse
from typing import NoReturn

from jigsaw_opt.text import printable

__all__ = ["Parser", "add_threads"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors may repeat any argument; its subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Print usage and the message on one line, and exit."""
        super().error(printable(message))


def add_threads(parser: argparse._ActionsContainer, told: str) -> None:
    """Add ``--threads``, in the field ``workers``, and its former name, which says what it is called now."""
    parser.add_argument("--threads", dest="workers", type=int, metavar="N", help=told)
    parser.add_argument("--workers", action=_FormerName, type=int, help=argparse.SUPPRESS)


class _FormerName(argparse.Action):
    """An option under a name that it has no more; the field is called so still."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        from jigsaw_opt.cli.output import note

        note(f"{option_string} is called --threads now")
        setattr(namespace, self.dest, values)
