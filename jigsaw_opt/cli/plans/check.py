"""Check a plan against its instance, from the definitions alone; list every broken rule."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import PLAN, Arguments
from jigsaw_opt.cli.common.options import instance_and_plan
from jigsaw_opt.cli.common.output import note, print_json
from jigsaw_opt.text import printable

if TYPE_CHECKING:
    from jigsaw_opt.checking import Violation

EXAMPLE = "jigsaw check server/demo plan.json"
CHECK_FAILED = 7
_SHOWN = 1000
ARGUMENTS: Arguments = {**PLAN, "--json": "print the broken rules as JSON"}


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from jigsaw_opt.checking import check
    from jigsaw_opt.checking.require import of_another

    instance, plan = instance_and_plan(arguments)
    violations, other = check(instance, plan), of_another(instance, plan)
    if arguments.json:
        rows = [{"rule": v.rule, "path": v.path, "message": v.message, "read": v.read} for v in violations]
        print_json({"correct": not violations, "violations": rows})
    elif other is not None:
        print(printable(f"{arguments.plan} {other}"))
    elif violations:
        _print(violations[:_SHOWN])
        if len(violations) > _SHOWN:
            note(f"and {len(violations) - _SHOWN} more (all with --json)")
    else:
        print("correct")
    return CHECK_FAILED if violations else 0


def _print(violations: Sequence[Violation]) -> None:
    """Print each broken rule with where it stands, and below it every place that breaks it."""
    for (rule, read), broken in groupby(violations, key=attrgetter("rule", "read")):
        print(f"{rule} ({read})")
        for violation in broken:
            print(printable(f"  {violation.path}: {violation.message}"))
