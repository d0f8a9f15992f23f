"""Export a plan to what shows or runs it, or an instance as a mixed-integer program, whose solutions come back."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jigsaw_opt.cli.common.arguments import A_PROOF, Arguments
from jigsaw_opt.cli.common.options import given_proof
from jigsaw_opt.cli.common.output import emit, note, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout
from jigsaw_opt.errors import UsageError, malformed, missing_option, not_together

EXAMPLE = "jigsaw export server/demo --to mps -o program.mps"
_OPTIONS = (
    "replay",
    "form",
    "partition",
    "layers",
    "batch",
    "layout_of",
    "most_coefficients",
    "at_most",
    "iterations",
    "proof",
)
_DUAL = ".sol", "a dual solution is written beside the program: give -o FILE.mps"
_PROVES = {
    "mps": _DUAL,
    "lp": _DUAL,
    "opb": (".pbp", "a refutation is written beside the problem: give -o FILE.opb"),
}
"""By format, the ending of what shows a proof beside the output, and what is told without an output."""
_SECONDS_BETWEEN_NOTES = 2.0


def _kinds(text: str) -> list[tuple[str, str]]:
    """Return patterns of names with their kinds."""
    found = []
    for word in text.split(","):
        pattern, _, kind = word.strip().rpartition("=")
        if not pattern:
            raise malformed("--layout-of", f"--layout-of takes PATTERN=KIND, as in 'blocks.*=t,head=L', not {word!r}")
        found.append((pattern, kind))
    return found


ARGUMENTS: Arguments = {
    "instance INSTANCE": "an instance document, or the name of a bundled instance",
    "[plan] PLAN": "a plan document; not for a program or a shop",
    "--replay FILE": "a replay of the plan, traced beside it",
    "exactly one of:": {
        "--to perfetto|chakra|mps|lp|opb|jsplib|torch-csv|torchtitan|megatron-layout": "format",
        "--read-solution FILE": "write the plan of a solution file of the program, by HiGHS, SCIP, CBC or Gurobi",
    },
    "-o, --output FILE !": {"help": "where to write (-: standard output)", "type": file_or_stdout},
    "--format compute_only|compute_comms": {
        "help": "torch-csv: passes alone, or also what ranks send and receive (compute_only)",
        "dest": "form",
    },
    "--max-coefficients N": {
        "help": "write programs of at most so many coefficients (5000000)",
        "dest": "most_coefficients",
    },
    "--proof PROOF": f"{A_PROOF}; mps, lp: write the linear program that it is a dual solution of, and that (.sol);"
    " opb: write the rows that it refutes, and the refutation for VeriPB (.pbp)",
    "--at-most N": "opb: the objective that a plan may have",
    "--iterations each|together": "opb: rows of each iteration, or fewer rows, of all iterations of a job (each)",
    "modules of a pipeline's stages, for torchtitan and megatron-layout:": {
        "--partition FILE": "which layers each stage has: what jigsaw partition -o or jigsaw pipeline --cuts has"
        " written",
        "--layers FILE": "the layer profile, where its layers name modules",
        "--batch N": "torchtitan: samples of a step on a rank",
        "--layout-of PATTERNS": {
            "help": "megatron-layout: kinds of modules by patterns of their names, as in"
            " 'blocks.*=t,stem=E,head=L,norm=-'",
            "type": _kinds,
        },
    },
}


def run(arguments: argparse.Namespace) -> int:
    """Write the trace, the program, or the plan of its solution."""
    from jigsaw_opt.documents import load_plan, make_folder
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.views.export import export

    output, options = arguments.output, _given(arguments)
    inputs = tuple(getattr(arguments, name) for name in ("instance", "plan", "replay", "partition", "layers", "proof"))
    if arguments.to == "chakra":
        _require_folder(output)
    else:
        require_output(output, *inputs, arguments.read_solution)
    for name in options.keys() & {"csv", "beside"}:
        require_output(Path(options[name]), *inputs)
    instance = instance_from(arguments.instance)
    if arguments.read_solution is not None:
        if arguments.plan is not None or options:
            raise not_together("--read-solution", "--read-solution takes the instance of the program alone")
        emit(_plan_of(arguments.read_solution, instance), output)
        return 0
    plan = None if arguments.plan is None else load_plan(arguments.plan)
    made = export(instance, plan, arguments.to, **options)
    if arguments.to == "chakra":
        make_folder(output, list(made.files), inputs[:2])
        files = {output / name: data for name, data in made.files.items()}
    else:
        own, *others = made.files
        files = {Path(name): made.files[name] for name in others} | {output: made.files[own]}
    for told in made.notes:
        note(told)
    for path, data in files.items():
        emit(data, path)
    return 0


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the format that were given, and those that follow from the output."""
    options = {name: getattr(arguments, name) for name in _OPTIONS if getattr(arguments, name) is not None}
    if arguments.to in ("mps", "lp"):
        options["on_rows"] = _progress()
    if arguments.to in _PROVES and arguments.proof is not None:
        options["beside"] = _beside(arguments, *_PROVES[arguments.to])
        options["proof"] = given_proof(arguments)
    if arguments.to == "torchtitan":
        options["csv"] = _beside(arguments, ".csv", "a schedule is written beside the configuration: give -o FILE.toml")
    return options


def _beside(arguments: argparse.Namespace, ending: str, told: str) -> str:
    """Return the name of the output with another ending, or refuse an output that has it."""
    output = arguments.output
    if output is None or output.suffix in ("", ending):
        raise missing_option("-o", told)
    return str(output.with_suffix(ending))


def _require_folder(output: Path | None) -> None:
    from jigsaw_opt.documents import exists

    if output is None or (exists(output) and not output.is_dir()):
        raise UsageError("chakra writes a file for each GPU: give -o FOLDER", code="unwritable")


def _progress() -> Callable[[int, bool], None]:
    """Return what says from time to time how many rows of a program are built, and when all of a long one are."""
    from time import monotonic

    begun = told = monotonic()

    def report(rows: int, complete: bool) -> None:
        nonlocal told
        if complete and monotonic() - begun >= _SECONDS_BETWEEN_NOTES:
            note(f"all {rows:,} rows are built; the file is made of them")
        elif monotonic() - told >= _SECONDS_BETWEEN_NOTES:
            told = monotonic()
            note(f"{rows:,} rows are built")

    return report


def _plan_of(path: Path, instance: Any) -> bytes:
    from jigsaw_opt.checking.require import require_correct
    from jigsaw_opt.documents import encode_plan
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.readers.solutions import read_solution
    from jigsaw_opt.solvers.ilp.solution import plan_of_solution

    solution = read_solution(read_text(path), str(path))
    plan = plan_of_solution(instance, solution, str(path))
    require_correct(instance, plan, f"the plan of {path}")
    stated = "no objective" if solution.objective is None else f"{instance.objective} {solution.objective:,.1f}"
    note(f"{solution.engine}: the file states {stated}; the plan has {plan.objective:,} in exact times")
    return encode_plan(plan)
