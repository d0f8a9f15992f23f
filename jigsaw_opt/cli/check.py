"""Check a plan against its instance, from the definitions alone; list every broken rule."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "check a plan against its instance"
CHECK_FAILED = 7
_SHOWN = 1000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan document")
    parser.add_argument("--json", action="store_true", help="print the broken rules as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from jigsaw_opt.checking import check
    from jigsaw_opt.cli.output import note, print_json, print_table
    from jigsaw_opt.cli.source import instance_from
    from jigsaw_opt.documents import load_plan

    violations = check(instance_from(arguments.instance), load_plan(arguments.plan))
    if arguments.json:
        rows = [{"rule": v.rule, "path": v.path, "message": v.message, "read": v.read} for v in violations]
        print_json({"correct": not violations, "violations": rows})
    elif violations:
        shown = violations[:_SHOWN]
        print_table(("rule", "where", "what", "read"), [(v.rule, v.path, v.message, v.read) for v in shown])
        if len(violations) > _SHOWN:
            note(f"and {len(violations) - _SHOWN} more (all with --json)")
    else:
        print("correct")
    return CHECK_FAILED if violations else 0
