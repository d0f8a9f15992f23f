"""Compare links shared fairly, with time shifts, and by plans that use them in turn."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.arguments import EFFORT_OF_ALL, Arguments
from jigsaw_opt.cli.common.options import checked_plan, effort
from jigsaw_opt.cli.common.output import ended, print_table, require_output, tell

if TYPE_CHECKING:
    from jigsaw_opt.planning.shifts.comparison import Comparison
    from jigsaw_opt.problem.instance import Instance


ARGUMENTS: Arguments = {
    "instance INSTANCE": "a cyclic instance: a document, or a bundled name",
    "--plan FILE *": "its placement is a candidate (repeatable); without any, a solved one and random ones are",
    "--placements N = 8": "random candidates",
    "--most A = 4": {"help": "largest ratio of a job", "type": int},
    **EFFORT_OF_ALL,
    "-o, --output INSTANCE": {"help": "write the instance with the best ratios", "type": Path},
    "--best-plan FILE": "write its plan",
    "--json": "print the result as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Compare, write the plan with ratios, print."""
    from jigsaw_opt.documents import save_instance, save_plan
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.planning.shifts.comparison import compare

    require_output(arguments.output, arguments.instance)
    require_output(arguments.best_plan, arguments.instance, outputs=[arguments.output])
    instance = instance_from(arguments.instance)
    plans = [checked_plan(arguments.instance, path)[1] for path in arguments.plan]
    options = effort(arguments)
    found = compare(instance, options, plans, placements=arguments.placements, most=arguments.most)
    if arguments.output is not None:
        save_instance(found.ratios.best.instance, arguments.output)
    if arguments.best_plan is not None:
        save_plan(found.ratios.best.plan, arguments.best_plan)
    told = _document(instance, found)
    tell(arguments.json, told, lambda: _print(told))
    return ended(options.cancel.is_set(), "the best shifts and ratios found so far")


def _document(instance: Instance, found: Comparison) -> dict[str, Any]:
    shifts, ratios, jobs = found.chosen.shifts, found.ratios, found.chosen.jobs
    columns = zip(
        jobs,
        shifts.shifts_us,
        found.alone_us,
        found.fair_us,
        found.shifted_us,
        found.planned_us(ratios.plain.slowdowns),
        found.planned_us(ratios.best.slowdowns),
        ratios.best.ratios,
        strict=True,
    )
    keys = ("shift_us", "alone_us", "fair_us", "shifted_us", "period_us", "ratios_us", "ratio")
    return {
        "placements": found.placements,
        "grid_us": shifts.grid_us,
        "cycles_rounded": shifts.rounded,
        "affinity_graph_has_cycle": shifts.has_cycle,
        "mean_compatibility": {"unshifted": shifts.unshifted, "shifted": shifts.mean, "bound": shifts.bound},
        "shifts_status": shifts.status,
        "links": [
            {
                "link": instance.cluster.links[link.shared.link].name,
                "jobs": [jobs[j].name for j in link.shared.users],
                "load": link.load,
                "unshifted": float(link.unshifted),
                "shifted": float(link.shifted),
                "method": link.method,
            }
            for link in shifts.links
        ],
        "jobs": [{"job": job.name, **dict(zip(keys, values, strict=True))} for job, *values in columns],
        "common_period": {"slowdown": ratios.plain.value, "bound": ratios.plain_bound},
        "ratios": {"slowdown": ratios.best.value, "bound": ratios.bound, "status": ratios.status},
    }


def _print(told: dict[str, Any]) -> None:
    headers = ("link", "jobs", "load %", "compatibility", "with shifts", "shifts by")
    rows = []
    for link in told["links"]:
        numbers = f"{100 * link['load']:.1f}", f"{link['unshifted']:.3f}", f"{link['shifted']:.3f}"
        rows.append((link["link"], ", ".join(link["jobs"]), *numbers, link["method"]))
    print_table(headers, rows, right=headers[2:5])
    mean = told["mean_compatibility"]
    print(f"\nmean compatibility {mean['unshifted']:.4f}, with shifts {mean['shifted']:.4f}, ", end="")
    print(f"bound {mean['bound']:.4f} ({told['shifts_status']}), on a grid of {told['grid_us']} us", end="")
    print(", cycles rounded up" if told["cycles_rounded"] else "")
    if told["affinity_graph_has_cycle"]:
        print("the affinity graph has a cycle, so links were solved together; CASSINI leaves such placements out")
    print()
    heads = ("job", "alone us", "fair", "shifted", "common period", "with ratios", "ratio", "shift us")
    keys = ("fair_us", "shifted_us", "period_us", "ratios_us")
    jobs = []
    for job in told["jobs"]:
        factors = (f"{job[key] / job['alone_us']:.3f}" for key in keys)
        jobs.append((job["job"], f"{job['alone_us']:.0f}", *factors, job["ratio"], job["shift_us"]))
    print_table(heads, jobs, right=heads[1:])
    period, ratios = told["common_period"], told["ratios"]
    print(f"\nmean time of an iteration over that alone: common period {period['slowdown']:.4f} ", end="")
    print(f"(bound {period['bound']:.4f}), with ratios {ratios['slowdown']:.4f} ", end="")
    print(f"(bound {ratios['bound']:.4f}, {ratios['status']})")
