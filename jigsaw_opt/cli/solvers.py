"""List the registered solvers."""

from __future__ import annotations

import argparse

HELP = "list the solvers"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print name, what it is, and whether its engine is installed."""
    from jigsaw_opt.cli.output import print_json, print_table
    from jigsaw_opt.solvers.registry import find, names

    found = [(name, find(name).display_name, find(name).unavailable()) for name in names()]
    if arguments.json:
        print_json([{"name": n, "description": d, "installed": m is None, "install": m} for n, d, m in found])
    else:
        rows = [(n, d, "installed" if m is None else f"pip install '{m}'") for n, d, m in found]
        print_table(("solver", "what it is", "engine"), rows)
    return 0
