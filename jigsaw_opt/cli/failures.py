"""What becomes of a plan when one link, switch or server fails."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "show what single failures of links, switches and servers do to a plan"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan document")
    parser.add_argument("--json", action="store_true", help="print the effects as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Work the effects out and print them."""
    from dataclasses import asdict

    from jigsaw_opt.cli.output import print_json, print_table
    from jigsaw_opt.cli.source import checked_plan
    from jigsaw_opt.solvers.resolve.failures import failure_effects

    instance, plan = checked_plan(arguments.instance, arguments.plan)
    effects = list(failure_effects(instance, plan))
    if arguments.json:
        print_json({"objective": plan.objective, "failures": [asdict(effect) for effect in effects]})
        return 0
    rows = [
        [
            effect.kind,
            effect.failed,
            "-" if effect.objective is None else f"{effect.objective:,}",
            ", ".join(effect.rerouted) or "-",
            ", ".join(effect.stopped) or "-",
            ", ".join(effect.broken) or "-",
        ]
        for effect in effects
    ]
    print_table(["kind", "failed", instance.objective, "rerouted", "stopped", "promise broken"], rows)
    return 0
