"""Why a job of a plan or a simulation is slow."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.output import emit, print_json, require_output
from jigsaw_opt.cli.common.source import checked_plan
from jigsaw_opt.errors import UsageError, missing_option
from jigsaw_opt.text import named, suggestion

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance
    from jigsaw_opt.problem.plan import Plan
    from jigsaw_opt.solvers.explanation import JobExplanation
    from jigsaw_opt.solvers.explanation.stretches import JobStretches

EXAMPLE = "jigsaw explain server/demo plan.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = "%(prog)s INSTANCE PLAN [JOB] [-o PAGE] [--json] | FOLDER [JOB] [--json]"
    parser.add_argument(
        "instance",
        metavar="INSTANCE",
        help="an instance document, or the name of a bundled instance; or the folder of a simulation, with no plan",
    )
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a plan document")
    parser.add_argument("job", nargs="?", metavar="JOB", help="a job to look at closely (default: an overview of all)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PAGE", help="write the timeline with the critical chain of JOB as HTML"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Work the explanations out and print them."""
    folder = Path(arguments.instance)
    require_output(arguments.output, arguments.instance, arguments.plan)
    if arguments.output is not None and arguments.job is None:
        raise missing_option("-o", "-o draws the critical chain of a job of a plan, which is missing")
    if folder.is_dir():
        if arguments.job is not None:
            raise UsageError(
                f"{folder} is the folder of a simulation, of which one job is asked for at most",
                code="wrong-count",
                path="jobs",
            )
        return _of_simulation(folder, arguments.plan, arguments.json)
    if arguments.plan is None:
        raise missing_option("plan", f"a plan is missing; {folder} is no folder of a simulation")
    return _of_plan(arguments)


def _of_simulation(folder: Path, job: str | None, as_json: bool) -> int:
    from jigsaw_opt.cli.plans.explain_report import print_times
    from jigsaw_opt.simulation.results.job_times import job_times, times_as_json, why_not_ended

    times = job_times(folder)
    if job is not None:
        names = [time.job for time in times]
        if job not in names:
            if told := why_not_ended(folder, job):
                raise UsageError(told, code="unsupported", path="jobs")
            raise UsageError(
                f"no job {job!r} has ended in {folder}",
                suggestion(job, names) or f"ended: {named(names)}",
                code="unknown-name",
                path="jobs",
            )
        times = [times[names.index(job)]]
    if as_json:
        print_json(times_as_json(times))
    else:
        print_times(times)
    return 0


def _of_plan(arguments: argparse.Namespace) -> int:
    from jigsaw_opt.cli.plans.explain_report import as_json, print_job, print_overview
    from jigsaw_opt.solvers.explanation import explain
    from jigsaw_opt.solvers.explanation.changes import changes
    from jigsaw_opt.solvers.explanation.in_words import bound_reason

    instance, plan = checked_plan(arguments.instance, Path(arguments.plan))
    if plan.is_phased:
        return _of_phases(instance, plan, arguments)
    jobs = explain(instance, plan, arguments.job)
    if arguments.output is not None:
        emit(_page(instance, plan, jobs), arguments.output)
        return 0
    gains = None if arguments.job is None else changes(instance, plan, arguments.job)
    reason = bound_reason(instance, plan.bound)
    if arguments.json:
        print_json(as_json(instance, plan, jobs, gains, reason))
    elif gains is None:
        print_overview(instance, plan, jobs, reason)
    else:
        print_job(instance, plan, jobs[0], gains, reason)
    return 0


def _of_phases(instance: Instance, plan: Plan, arguments: argparse.Namespace) -> int:
    from jigsaw_opt.cli.plans.explain_report import phases_as_json, print_phases_of_job, print_phases_overview
    from jigsaw_opt.solvers.explanation.stretches import explain_phases

    jobs = explain_phases(instance, plan, arguments.job)
    if arguments.output is not None:
        emit(_page(instance, plan, jobs), arguments.output)
    elif arguments.json:
        print_json(phases_as_json(plan, jobs))
    elif arguments.job is None:
        print_phases_overview(jobs)
    else:
        print_phases_of_job(*jobs)
    return 0


def _page(instance: Instance, plan: Plan, jobs: Sequence[JobExplanation | JobStretches]) -> bytes:
    from jigsaw_opt.views.explained import explained_picture
    from jigsaw_opt.views.html import timeline_html
    from jigsaw_opt.views.lanes import picture

    return timeline_html(explained_picture(picture(instance, plan), jobs)).encode()
