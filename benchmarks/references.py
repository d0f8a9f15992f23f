"""Answers of other systems beside ours, a row a case: ``python benchmarks/references.py NAME [options]``.

Cases and answers are read from the measured data (``JIGSAW_SHARED``), or are the files named.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from common import print_table

NAMES = ("gavel_lps", "muri_groups", "pipedream", "sia_round", "simgrid_replay")


def main() -> None:
    """Print the table of the name asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named = parser.add_subparsers(required=True, metavar="NAME")
    for name in NAMES:
        table = import_module(f"references.{name}")
        said = table.__doc__ or ""
        own = named.add_parser(name, help=said.partition("\n")[0], description=said)
        table.add_arguments(own)
        own.set_defaults(table=table)
    asked = parser.parse_args()
    print_table(asked.table.HEADS, asked.table.rows(asked))


if __name__ == "__main__":
    main()
