"""List the registered policies of `jigsaw simulate`."""

from __future__ import annotations

import argparse

HELP = "list the policies of simulations"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print name, what it does, and its options with their values, the default first."""
    from jigsaw_opt.cli.output import print_json, print_table
    from jigsaw_opt.simulation.policy import find, names

    found = [(name, find(name).display_name, find(name).options) for name in names()]
    if arguments.json:
        print_json([{"name": n, "description": d, "options": {k: list(v) for k, v in o.items()}} for n, d, o in found])
    else:
        rows = [(n, d, " ".join(f"{key}={'|'.join(values)}" for key, values in o.items())) for n, d, o in found]
        print_table(("policy", "what it does", "options"), rows)
    return 0
