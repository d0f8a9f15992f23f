"""Fill the holes that foreground jobs leave of GPUs and links with iterations of background jobs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import EFFORT_OF_ALL, Arguments
from jigsaw_opt.cli.common.options import effort
from jigsaw_opt.cli.common.output import ended, print_json, print_table, require_output
from jigsaw_opt.errors import malformed

if TYPE_CHECKING:
    from jigsaw_opt.planning.fill import FilledHoles
    from jigsaw_opt.planning.planned import Planned


ARGUMENTS: Arguments = {
    "instance INSTANCE": "a cyclic instance: a document, or a bundled name",
    "--foreground NAME[,NAME] * !": "jobs whose throughput is guaranteed; all others are background",
    "--slowdown FACTOR = 1.1": "the period may be so many times the foreground's least one",
    "--least NAME=RATE *": "iterations a second that a background job gets at least; again for each such job",
    **EFFORT_OF_ALL,
    "-o, --output INSTANCE": {"help": "write the instance with its iterations", "type": Path},
    "--plan FILE": "write its plan",
    "--json": "print the result as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Fill, write instance and plan, print."""
    from jigsaw_opt.documents import save_instance, save_plan
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.planning.fill import fill

    require_output(arguments.output, arguments.instance)
    require_output(arguments.plan, arguments.instance, outputs=[arguments.output])
    names = [name.strip() for group in arguments.foreground for name in group.split(",")]
    options, least = effort(arguments), dict(map(_rate, arguments.least))
    found = fill(instance_from(arguments.instance), names, options, slowdown=arguments.slowdown, least=least)
    if arguments.output is not None:
        save_instance(found.instance, arguments.output)
    if arguments.plan is not None and found.plan is not None:
        save_plan(found.plan, arguments.plan)
    _print(found, arguments.json)
    return ended(options.cancel.is_set(), "the best iterations and plan found so far")


def _rate(pair: str) -> tuple[str, float]:
    """Return a job and its least rate; the name may have a ``=``."""
    name, _, rate = pair.rpartition("=")
    try:
        return name, float(rate)
    except ValueError:
        raise malformed("--least", f"--least takes NAME=RATE, as in train=2.5; not {pair!r}") from None


def _print(found: Planned[FilledHoles], as_json: bool) -> None:
    filling, period = found.details, found.objective or 0
    slowdown = period / filling.foreground_us
    gap = 1 - filling.rate / filling.rate_bound if filling.rate_bound else 0.0
    if as_json:
        told = {"rate_per_s": filling.rate, "bound_per_s": filling.rate_bound, "gap": gap, "period_us": period}
        keys = ("status", "iterations", "allowed_us", "foreground_us", "foreground_bound_us")
        told |= {key: getattr(filling, key) for key in keys} | {"slowdown": slowdown, "holes_filled": filling.filled}
        print_json(told)
        return
    rows = [(name, count, f"{count * 1e6 / period:.2f}") for name, count in filling.iterations.items()]
    headers = ("background job", "iterations a period", "a second")
    print_table(headers, rows, right=headers[1:])
    print(f"\n{filling.rate:.2f} weighted iterations a second, bound {filling.rate_bound:.2f}, ", end="")
    print(f"gap {100 * gap:.2f} % ({filling.status})")
    print(f"period {period} us of {filling.allowed_us} allowed; alone the foreground takes ", end="")
    print(f"{filling.foreground_us}: {slowdown:.4f} times")
    if filling.foreground_bound_us < filling.foreground_us:
        print(f"that is the best found, not proven: none is below {filling.foreground_bound_us}")
    print(f"{100 * filling.filled:.1f} % of the GPU time that the foreground leaves is filled")
