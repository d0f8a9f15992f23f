"""What becomes of a plan when links, switches or servers fail."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import PLAN, Arguments
from jigsaw_opt.cli.common.options import instance_and_plan
from jigsaw_opt.cli.common.output import emit, ended, print_json, print_table, require_output
from jigsaw_opt.cli.common.parser import option_of
from jigsaw_opt.errors import spelled_by

if TYPE_CHECKING:
    from jigsaw_opt.solvers.failures import Failure


ARGUMENTS: Arguments = {
    **PLAN,
    "--kinds KIND[,KIND] = link,switch,server": "what fails",
    "--pairs": "also two at once, but for pairs that do what one of them does alone",
    "--at MICROSECONDS": "time of the plan when it fails; iterations that have ended by then are done (default: 0)",
    "--repair SECONDS": "also repair the plan after each failure that hits it",
    "--seed N = 0": "seed of the repairs",
    "-o, --output PAGE": "write one HTML page with the cluster here",
    "--json": "print the effects as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Work the effects out and print them."""
    from jigsaw_opt.solvers.failures import failures
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.views.failures_page import failures_html, worst_first

    require_output(arguments.output, arguments.instance, arguments.plan)
    with spelled_by(lambda name, _: "--repair" if name == "time_limit" else option_of(name)):
        options = None if arguments.repair is None else Options(arguments.repair, seed=arguments.seed)
    instance, plan = instance_and_plan(arguments)
    kinds = [name.strip() for name in arguments.kinds.split(",")]
    found = failures(instance, plan, kinds, pairs=arguments.pairs, at_us=arguments.at, repair=options)
    touched = [each.repair for each in found if each.effect.stopped or each.effect.rerouted]
    kept = f"{sum(repair is not None for repair in touched)} of {len(touched)} failures that touch a job are repaired"
    if arguments.output is not None:
        emit(failures_html(instance, plan.objective, found).encode(), arguments.output)
    elif arguments.json:
        print_json({"objective": plan.objective, "failures": [_as_json(failure) for failure in found]})
    else:
        headers = ["kind", "failed", instance.objective, "rerouted", "slowest", "stopped", "guarantee broken"]
        repairing = [] if options is None else ["repaired", "status", "moved", "no place"]
        print_table(headers + repairing, [_row(failure, len(repairing)) for failure in worst_first(found)])
    return ended(options is not None and options.cancel.is_set(), kept)


def _as_json(failure: Failure) -> dict[str, Any]:
    from dataclasses import asdict

    effect, repair = failure
    transfers = {job: [change._asdict() for change in own] for job, own in effect.transfers.items()}
    told = asdict(effect) | {"transfers": transfers}
    if effect.phases is None:
        del told["phases"]
    if repair is None:
        return told
    names = ("status", "solver", "objective", "bound", "certified_bound", "unplaced", "moved")
    return told | {"repair": {name: getattr(repair, name) for name in names}}


def _row(failure: Failure, repairing: int) -> list[str]:
    """Return the cells of a failure, with those of its repair."""
    effect, repair = failure
    slowest = ""
    if effect.slowest is not None:
        job, change = effect.slowest
        slowest = f"{job} {change.transfer}: {change.old_us:,} to {change.new_us:,} us"
    cells = [
        " + ".join(part.kind for part in effect.failed),
        " + ".join(part.name for part in effect.failed),
        _number(effect.objective),
        ", ".join(effect.rerouted),
        slowest,
        ", ".join(effect.stopped),
        ", ".join(effect.broken),
    ]
    if repair is not None:
        cells += [_number(repair.objective), repair.status, ", ".join(repair.moved), ", ".join(repair.unplaced)]
    elif repairing:
        cells += [""] * repairing
    return [cell or "-" for cell in cells]


def _number(objective: int | None) -> str:
    return "" if objective is None else f"{objective:,}"
