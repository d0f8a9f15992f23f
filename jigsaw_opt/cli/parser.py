"""Reading the command line: argparse, with what users have typed made printable in its messages."""

from __future__ import annotations

import argparse
from typing import NoReturn

from jigsaw_opt.text import printable

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """A parser whose errors may repeat any argument; its subparsers are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Print usage and the message on one line, and exit."""
        super().error(printable(message))
