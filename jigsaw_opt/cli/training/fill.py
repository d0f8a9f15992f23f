"""Fill the holes that foreground jobs leave of GPUs and links with iterations of background jobs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.options import add_effort_of_all, effort
from jigsaw_opt.cli.common.output import ended, print_json, print_table, require_output
from jigsaw_opt.errors import Problem, UsageError, out_of_range

if TYPE_CHECKING:
    from fractions import Fraction

    from jigsaw_opt.planning.fill import FillResult


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="a cyclic instance: a document, or a bundled name")
    parser.add_argument(
        "--foreground",
        action="append",
        required=True,
        metavar="NAME[,NAME]",
        help="jobs whose throughput is guaranteed; all others are background",
    )
    parser.add_argument(
        "--slowdown",
        default="1.1",
        metavar="FACTOR",
        help="the period may be so many times the foreground's least one (default: 1.1)",
    )
    parser.add_argument(
        "--least",
        action="append",
        default=[],
        metavar="NAME=RATE",
        help="iterations a second that a background job gets at least; again for each such job",
    )
    add_effort_of_all(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="INSTANCE", help="write the instance with its iterations")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="write its plan")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Fill, write instance and plan, print."""
    from jigsaw_opt.documents import save_instance, save_plan

    require_output(arguments.output, arguments.instance, arguments.plan)
    require_output(arguments.plan, arguments.instance, arguments.output)
    found = _filled(arguments)
    if arguments.output is not None:
        save_instance(found.instance, arguments.output)
    if arguments.plan is not None:
        save_plan(found.plan, arguments.plan)
    if arguments.json:
        print_json(_document(found))
    else:
        _print(found)
    return ended(found.interrupted, "the best iterations and plan found so far")


def _filled(arguments: argparse.Namespace) -> FillResult:
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.planning.fill import fill

    slowdown = _number(arguments.slowdown)
    if slowdown is None:
        raise out_of_range("--slowdown", f"--slowdown is a number of at least 1, as in 1.1, not {arguments.slowdown!r}")
    names = [name.strip() for group in arguments.foreground for name in group.split(",")]
    least = _least(arguments.least)
    return fill(instance_from(arguments.instance), names, effort(arguments), slowdown=slowdown, least=least)


def _number(text: str) -> Fraction | None:
    from fractions import Fraction

    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None


def _least(pairs: list[str]) -> dict[str, Fraction]:
    """Return least rates by name of the job; the name may have a ``=``."""
    found: dict[str, Fraction] = {}
    wrong: list[Problem] = []
    for pair in pairs:
        name, _, text = pair.rpartition("=")
        rate = _number(text)
        if not name or rate is None or name in found:
            told = f"--least takes NAME=RATE, each name once, as in train=2.5; not {pair!r}"
            wrong.append(Problem("--least", told, code="malformed"))
        else:
            found[name] = rate
    if wrong:
        raise UsageError.of(wrong)
    return found


def _document(found: FillResult) -> dict[str, Any]:
    return {
        "status": found.status,
        "rate_per_s": found.rate,
        "bound_per_s": found.bound,
        "gap": found.gap,
        "iterations": dict(found.iterations),
        "period_us": found.plan.objective,
        "allowed_us": found.allowed_us,
        "foreground_us": found.foreground_us,
        "foreground_bound_us": found.foreground_bound_us,
        "slowdown": found.slowdown,
        "holes_filled": found.filled,
        "seconds": round(found.seconds, 3),
    }


def _print(found: FillResult) -> None:
    rows = [(name, count, f"{count * 1e6 / found.plan.objective:.2f}") for name, count in found.iterations.items()]
    headers = ("background job", "iterations a period", "a second")
    print_table(headers, rows, right=headers[1:])
    print(f"\n{found.rate:.2f} weighted iterations a second, bound {found.bound:.2f}, ", end="")
    print(f"gap {100 * found.gap:.2f} % ({found.status}), {found.seconds:.1f} s")
    print(f"period {found.plan.objective} us of {found.allowed_us} allowed; alone the foreground takes ", end="")
    print(f"{found.foreground_us}: {found.slowdown:.4f} times")
    if not found.foreground_is_proven:
        print(f"that is the best found, not proven: none is below {found.foreground_bound_us}")
    print(f"{100 * found.filled:.1f} % of the GPU time that the foreground leaves is filled")
