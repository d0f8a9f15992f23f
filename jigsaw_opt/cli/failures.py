"""What becomes of a plan when links, switches or servers fail."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jigsaw_opt.solvers.resolve.failed_parts import PartKind
    from jigsaw_opt.solvers.resolve.failures import FailureEffect

HELP = "show what single failures of links, switches and servers do to a plan"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan document")
    parser.add_argument(
        "--kinds", metavar="KIND[,KIND]", default="link,switch,server", help="what fails (default: link,switch,server)"
    )
    parser.add_argument(
        "--pairs", action="store_true", help="also two at once, but for pairs that do what one of them does alone"
    )
    parser.add_argument("--json", action="store_true", help="print the effects as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Work the effects out and print them."""
    from jigsaw_opt.cli.output import print_json, print_table
    from jigsaw_opt.cli.source import checked_plan
    from jigsaw_opt.solvers.resolve.failures import failure_effects

    kinds = _kinds(arguments.kinds)
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    effects = list(failure_effects(instance, plan, kinds, arguments.pairs))
    if arguments.json:
        print_json({"objective": plan.objective, "failures": [_as_json(effect) for effect in effects]})
        return 0
    headers = ["kind", "failed", instance.objective, "rerouted", "slowest", "stopped", "promise broken"]
    print_table(headers, map(_row, effects))
    return 0


def _kinds(text: str) -> list[PartKind]:
    """Kinds of parts, as they are written behind `--kinds`."""
    from jigsaw_opt.errors import InvalidInputError, Problem
    from jigsaw_opt.solvers.resolve.failed_parts import KINDS

    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        known = ", ".join(KINDS)
        raise InvalidInputError(Problem("--kinds", f'there is no kind "{name}"', f"known: {known}") for name in unknown)
    return [kind for kind in KINDS if kind in names]


def _as_json(effect: FailureEffect) -> dict[str, Any]:
    from dataclasses import asdict

    transfers = {job: [change._asdict() for change in own] for job, own in effect.transfers.items()}
    return asdict(effect) | {"transfers": transfers}


def _row(effect: FailureEffect) -> list[str]:
    slowest = "-"
    if effect.slowest is not None:
        job, change = effect.slowest
        slowest = f"{job} {change.transfer}: {change.old_us:,} to {change.new_us:,} us"
    return [
        " + ".join(part.kind for part in effect.failed),
        " + ".join(part.name for part in effect.failed),
        "-" if effect.objective is None else f"{effect.objective:,}",
        ", ".join(effect.rerouted) or "-",
        slowest,
        ", ".join(effect.stopped) or "-",
        ", ".join(effect.broken) or "-",
    ]
