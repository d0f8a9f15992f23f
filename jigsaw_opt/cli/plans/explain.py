"""Say where the time of the jobs of a plan or of a simulation goes, and what would make one of them faster."""

from __future__ import annotations

import argparse
from pathlib import Path

from jigsaw_opt.cli.common.arguments import A_PROOF, Arguments
from jigsaw_opt.cli.common.options import given_proof, instance_and_plan
from jigsaw_opt.cli.common.output import emit, print_json, require_output
from jigsaw_opt.errors import UsageError, missing_option, not_together

USAGE = "%(prog)s INSTANCE PLAN [JOB] [--proof PROOF] [-o PAGE] [--json] | FOLDER [JOB] [--json]"
EXAMPLE = "jigsaw explain server/demo plan.json"
ARGUMENTS: Arguments = {
    "instance INSTANCE": "an instance document, or the name of a bundled instance; or the folder of a simulation,"
    " with no plan",
    "[plan] PLAN": {"help": "a plan document", "type": None},
    "[job] JOB": "a job to look at closely (default: an overview of all)",
    "--proof PROOF": f"check {A_PROOF}, and tell it instead of another one",
    "-o, --output PAGE": "write the timeline with the critical chain of JOB as HTML",
    "--json": "print all figures as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    """Work the explanations out and print them."""
    folder = Path(arguments.instance)
    require_output(arguments.output, arguments.instance, arguments.plan, arguments.proof)
    if arguments.output is not None and arguments.job is None:
        raise missing_option("-o", "-o draws the critical chain of a job of a plan, which is missing")
    if folder.is_dir():
        if arguments.job is not None:
            told = f"{folder} is the folder of a simulation, of which one job is asked for at most"
            raise UsageError(told, code="wrong-count", path="jobs")
        if arguments.proof is not None:
            raise not_together("--proof", f"{folder} is the folder of a simulation, and a proof is of a plan's bound")
        _of_simulation(folder, arguments.plan, arguments.json)
    elif arguments.plan is None:
        raise missing_option("plan", f"a plan is missing; {folder} is no folder of a simulation")
    else:
        _of_plan(arguments)
    return 0


def _of_simulation(folder: Path, job: str | None, as_json: bool) -> None:
    from jigsaw_opt.cli.plans.explain_report import print_times
    from jigsaw_opt.simulation.results.result import job_times, times_as_json

    times = job_times(folder, job)
    if as_json:
        print_json(times_as_json(times))
    else:
        print_times(times)


def _of_plan(arguments: argparse.Namespace) -> None:
    from jigsaw_opt.cli.plans.explain_report import print_explanation
    from jigsaw_opt.solvers.explanation import explain

    explanation = explain(*instance_and_plan(arguments), arguments.job, given_proof(arguments))
    if arguments.output is not None:
        from jigsaw_opt.views.explained import explained_picture
        from jigsaw_opt.views.html import timeline_html
        from jigsaw_opt.views.lanes import picture

        drawn = picture(explanation.instance, explanation.plan)
        emit(timeline_html(explained_picture(drawn, explanation.jobs, explanation.proof)).encode(), arguments.output)
    elif arguments.json:
        print_json(explanation.as_json())
    else:
        print_explanation(explanation)
