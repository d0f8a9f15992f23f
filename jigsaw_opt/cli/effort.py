"""How long the solves of a command may take, by how many threads, and with which seed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.parser import add_threads

if TYPE_CHECKING:
    from jigsaw_opt.solvers.options import Options

__all__ = ["add_effort_of_all", "effort"]


def add_effort_of_all(parser: argparse._ActionsContainer) -> None:
    """Add the limits of all solves of a command together, their seed and their threads."""
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="SECONDS", help="limit of all solves together (default: 60)"
    )
    parser.add_argument("--work-limit", type=float, metavar="UNITS", help="deterministic units of all solves together")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default: 0)")
    add_threads(parser, "threads (default: all cores)")


def effort(arguments: argparse.Namespace, **others: Any) -> Options:
    """Return the options of a solve, of what was given: limits, seed and threads."""
    from jigsaw_opt.solvers.options import Options

    threads = {"threads": arguments.threads} if arguments.threads is not None else {}
    names = [name for name in ("time_limit", "work_limit", "seed") if name not in others]
    given = {name: getattr(arguments, name) for name in names}
    return Options(**{**given, **threads, **others})
