"""Why a job of a plan is slow."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "say where the time of the jobs of a plan goes, and what would make one faster"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan document")
    parser.add_argument("job", nargs="?", metavar="JOB", help="a job to look at closely (default: an overview of all)")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Work the explanations out and print them."""
    from jigsaw_opt.cli.explain_report import as_json, print_job, print_overview
    from jigsaw_opt.cli.output import print_json
    from jigsaw_opt.cli.source import checked_plan
    from jigsaw_opt.solvers.explanation import explain
    from jigsaw_opt.solvers.explanation.changes import changes
    from jigsaw_opt.solvers.explanation.reason import bound_reason

    instance, plan = checked_plan(arguments.instance, arguments.plan)
    jobs = explain(instance, plan, arguments.job)
    gains = None if arguments.job is None else changes(instance, plan, arguments.job)
    reason = bound_reason(instance, plan.bound)
    if arguments.json:
        print_json(as_json(instance, plan, jobs, gains, reason))
    elif gains is None:
        print_overview(instance, plan, jobs, reason)
    else:
        print_job(instance, plan, jobs[0], gains, reason)
    return 0
