"""What becomes of a plan when links, switches or servers fail."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.output import emit, ended, print_json, print_table, require_output
from jigsaw_opt.cli.common.source import checked_plan
from jigsaw_opt.errors import InvalidInputError, Problem, Problems
from jigsaw_opt.text import nearest

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.solvers.failure_repair import FailureRepair
    from jigsaw_opt.solvers.options import Options
    from jigsaw_opt.solvers.resolve.failures import FailureEffect, PartKind
    from jigsaw_opt.solvers.resolve.remaining import RemainingWork

_SHORT_SECONDS = 2.0


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
    parser.add_argument(
        "--at",
        type=int,
        metavar="MICROSECONDS",
        help="time of the plan when it fails; iterations that have ended by then are done (default: 0)",
    )
    parser.add_argument("--repair", action="store_true", help="also repair the plan after each failure that hits it")
    parser.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help=f"with --repair: limit of each repair (default: {_SHORT_SECONDS:g})",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the repairs (default: 0)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PAGE", help="write one HTML page with the cluster here; needs no network"
    )
    parser.add_argument("--json", action="store_true", help="print the effects as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Work the effects out and print them."""
    require_output(arguments.output, arguments.instance, arguments.plan)
    kinds, instance, plan, rest = _asked(arguments)
    options = _options(arguments)
    found = _found(arguments, options, kinds, *((rest.instance, rest.plan) if rest is not None else (instance, plan)))
    touched = [repair for effect, repair in found if effect.stopped or effect.rerouted]
    kept = f"{sum(effect is not None for effect in touched)} of {len(touched)} failures that touch a job are repaired"
    code = ended(options.cancel.is_set(), kept)
    if rest is not None:
        found = [_absolute(rest, effect, repair) for effect, repair in found]
    if arguments.output is not None:
        from jigsaw_opt.views.failures_page import failures_html

        emit(failures_html(instance, plan.objective, found).encode(), arguments.output)
        return code
    if arguments.json:
        print_json({"objective": plan.objective, "failures": [_as_json(*failure) for failure in found]})
        return code
    from jigsaw_opt.views.failures_page import worst_first

    headers = ["kind", "failed", instance.objective, "rerouted", "slowest", "stopped", "guarantee broken"]
    repairing = ["repaired", "status", "moved", "no place"] if arguments.repair else []
    print_table(
        headers + repairing,
        (_row(effect) + (_repair_row(repair) if repairing else []) for effect, repair in worst_first(found)),
    )
    return code


def _asked(arguments: argparse.Namespace) -> tuple[list[PartKind], Instance, Plan, RemainingWork | None]:
    """Return what the arguments say; everything that is wrong with them is told at once."""
    from jigsaw_opt.solvers.resolve.remaining import remaining_at

    problems, read, rest = Problems(), None, None
    kinds: list[PartKind] = []
    with problems.of("--kinds"):
        kinds = _kinds(arguments.kinds)
    with problems.of("--time-limit"):
        _require_limit(arguments)
    with problems.of(arguments.instance):
        read = checked_plan(arguments.instance, arguments.plan)
    with problems.of("--at"):
        _require_moment(arguments.at)
    if read is not None and arguments.at is not None and arguments.at >= 0:
        with problems.of("--at"):
            rest = remaining_at(read[0], read[1], arguments.at)
    problems.tell()
    assert read is not None, "what was wrong is told"
    return kinds, *read, rest


def _kinds(text: str) -> list[PartKind]:
    """Return kinds of parts, as they are written behind `--kinds`."""
    from jigsaw_opt.solvers.resolve.failures import KINDS

    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise InvalidInputError(
            Problem("--kinds", f'there is no kind "{name}"', nearest(name, KINDS), code="unknown-value")
            for name in unknown
        )
    return [kind for kind in KINDS if kind in names]


def _require_moment(moment: int | None) -> None:
    if moment is not None and moment < 0:
        raise InvalidInputError([Problem("--at", f"must be at least 0; is {moment}", code="out-of-range")])


def _require_limit(arguments: argparse.Namespace) -> None:
    limit = arguments.time_limit
    if limit is not None and not arguments.repair:
        raise InvalidInputError(
            [Problem("--time-limit", "is a limit of --repair, which is not asked for", code="missing-option")]
        )
    if limit is not None and not limit >= 0:
        raise InvalidInputError([Problem("--time-limit", f"must be at least 0; is {limit}", code="out-of-range")])


def _found(
    arguments: argparse.Namespace, options: Options, kinds: list[PartKind], instance: Instance, plan: Plan
) -> list[tuple[FailureEffect, FailureRepair | None]]:
    """Return effects, and repairs of those that hit a job where they are asked for; after a signal, of no more."""
    from jigsaw_opt.solvers.resolve.failures import each_failure
    from jigsaw_opt.solvers.resolve.phase_failures import effects_on

    effects = effects_on(instance, plan)
    each = each_failure(effects, kinds, arguments.pairs)
    if not arguments.repair:
        return [(effect, None) for effect in each]
    from jigsaw_opt.solvers.failure_repair import repaired
    from jigsaw_opt.solvers.stop import interruptible

    def repair(effect: FailureEffect) -> FailureRepair | None:
        if options.cancel.is_set() or not (effect.stopped or effect.rerouted):
            return None
        found = repaired(instance, plan, effects, effect, options)
        return found if found.plan is not None or not options.cancel.is_set() else None

    with interruptible(options):
        return [(effect, repair(effect)) for effect in each]


def _options(arguments: argparse.Namespace) -> Options:
    """Return the options of each repair."""
    from jigsaw_opt.solvers.options import Options

    limit = _SHORT_SECONDS if arguments.time_limit is None else arguments.time_limit
    return Options(limit, seed=arguments.seed)


def _absolute(
    rest: RemainingWork, effect: FailureEffect, repair: FailureRepair | None
) -> tuple[FailureEffect, FailureRepair | None]:
    """Return the same with the jobs that have ended before in the objectives."""
    effect = replace(effect, objective=rest.total(effect.objective))
    if repair is None or repair.objective is None:
        return effect, repair
    bound = rest.total(repair.bound) or 0
    return effect, replace(repair, objective=rest.total(repair.objective), bound=bound)


def _as_json(effect: FailureEffect, repair: FailureRepair | None) -> dict[str, Any]:
    from dataclasses import asdict

    transfers = {job: [change._asdict() for change in own] for job, own in effect.transfers.items()}
    told = asdict(effect) | {"transfers": transfers}
    if effect.phases is None:
        del told["phases"]
    if repair is None:
        return told
    names = ("status", "solver", "objective", "bound", "unplaced", "moved")
    return told | {"repair": {name: getattr(repair, name) for name in names}}


def _row(effect: FailureEffect) -> list[str]:
    slowest = "-"
    if effect.slowest is not None:
        job, change = effect.slowest
        slowest = f"{job} {change.transfer}: {change.old_us:,} to {change.new_us:,} us"
    return [
        " + ".join(part.kind for part in effect.failed),
        " + ".join(part.name for part in effect.failed),
        _number(effect.objective),
        ", ".join(effect.rerouted) or "-",
        slowest,
        ", ".join(effect.stopped) or "-",
        ", ".join(effect.broken) or "-",
    ]


def _repair_row(repair: FailureRepair | None) -> list[str]:
    if repair is None:
        return ["-"] * 4
    return [
        _number(repair.objective),
        repair.status,
        ", ".join(repair.moved) or "-",
        ", ".join(repair.unplaced) or "-",
    ]


def _number(objective: int | None) -> str:
    return "-" if objective is None else f"{objective:,}"
