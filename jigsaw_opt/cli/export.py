"""Export a plan to what shows or runs it, or an instance as a mixed-integer program, whose solutions come back."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.parser import file_or_stdout

if TYPE_CHECKING:
    from jigsaw_opt.planning.pipeline.torch_csv import CsvFormat

HELP = "export a plan (perfetto, torch-csv) or a mixed-integer program (mps, lp), and read a solution of it"
EXAMPLE = "jigsaw export server/demo --to mps -o program.mps"
_SECONDS_BETWEEN_NOTES = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("plan", nargs="?", type=Path, metavar="PLAN", help="a plan document (perfetto, torch-csv)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a replay of the plan, traced beside it")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", choices=("perfetto", "mps", "lp", "torch-csv"), help="format")
    what.add_argument(
        "--read-solution",
        type=Path,
        metavar="FILE",
        help="write the plan of a solution file of the program, by HiGHS, SCIP, CBC or Gurobi",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=file_or_stdout,
        required=True,
        metavar="FILE",
        help="where to write (-: standard output)",
    )
    parser.add_argument(
        "--format",
        choices=("compute_only", "compute_comms"),
        help="torch-csv: passes alone, or also what ranks send and receive (compute_only)",
    )
    parser.add_argument(
        "--max-coefficients",
        type=int,
        metavar="N",
        help="write programs of at most so many coefficients (5000000)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the trace, the program, or the plan of its solution."""
    from jigsaw_opt.cli.output import emit, require_output
    from jigsaw_opt.errors import UsageError

    require_output(arguments.output, arguments.instance, arguments.plan, arguments.replay, arguments.read_solution)
    if arguments.to in ("perfetto", "torch-csv") and arguments.plan is None:
        raise UsageError(f"{arguments.to} needs a plan: jigsaw export INSTANCE PLAN --to {arguments.to} -o FILE")
    if arguments.to not in ("perfetto", "torch-csv") and arguments.plan is not None:
        raise UsageError("a plan goes with --to perfetto and --to torch-csv only")
    if arguments.to != "perfetto" and arguments.replay is not None:
        raise UsageError("--replay goes with --to perfetto only")
    if arguments.to != "torch-csv" and arguments.format is not None:
        raise UsageError("--format goes with --to torch-csv only")
    if arguments.max_coefficients is not None and arguments.to not in ("mps", "lp"):
        raise UsageError("--max-coefficients goes with --to mps and --to lp only")
    makers = {"perfetto": _trace, "mps": _program, "lp": _program, "torch-csv": _torch_csv, None: _plan}
    emit(makers[arguments.to](arguments), arguments.output)
    return 0


def _trace(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.cli.source import checked_plan, picture_of
    from jigsaw_opt.views.perfetto import perfetto_trace

    return perfetto_trace(picture_of(*checked_plan(arguments.instance, arguments.plan), arguments.replay))


def _torch_csv(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.cli.output import note
    from jigsaw_opt.cli.source import checked_plan
    from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH, torch_schedule

    form: CsvFormat = arguments.format or "compute_only"
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    found = torch_schedule(instance, plan, form)
    others = [job.name for number, job in enumerate(instance.jobs) if number != found.job]
    if others:
        note(f"left out: job{'s' * (len(others) > 1)} {', '.join(others)}; the file has the pipeline alone")
    note(f"a schedule for torch.distributed.pipelining as PyTorch {KNOWN_TORCH} reads it, in the format {form}")
    return found.csv.encode()


def _program(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.solvers.ilp import MOST_EXPORTED, model_document

    most = MOST_EXPORTED if arguments.max_coefficients is None else arguments.max_coefficients
    return model_document(instance_from(arguments.instance), arguments.to, most, _progress())


def _progress() -> Callable[[int, int], None]:
    """Return what says from time to time how many rows of a program are built, and when all of a long one are."""
    from time import monotonic

    from jigsaw_opt.cli.output import note

    begun = told = monotonic()

    def report(rows: int, most: int) -> None:
        nonlocal told
        if rows == most and monotonic() - begun >= _SECONDS_BETWEEN_NOTES:
            note(f"all {rows:,} rows are built; the file is made of them")
        elif monotonic() - told >= _SECONDS_BETWEEN_NOTES:
            told = monotonic()
            note(f"{rows:,} of at most {most:,} rows")

    return report


def _plan(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.checking import check
    from jigsaw_opt.cli.output import note
    from jigsaw_opt.documents import encode_plan
    from jigsaw_opt.documents.readers.solutions import read_solution
    from jigsaw_opt.documents.reading import read_file
    from jigsaw_opt.errors import CheckFailedError
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.solvers.ilp.solution import plan_of_solution

    path, instance = arguments.read_solution, instance_from(arguments.instance)
    solution = read_solution(read_file(path), str(path))
    plan = plan_of_solution(instance, solution, str(path))
    violations = check(instance, plan)
    if violations:
        raise CheckFailedError(f"the plan of {path} is wrong in {len(violations)} place(s), first {violations[0]}")
    stated = "no objective" if solution.objective is None else f"{instance.objective} {solution.objective:,.1f}"
    note(f"{solution.engine}: the file states {stated}; the plan has {plan.objective:,} in exact times")
    return encode_plan(plan)
