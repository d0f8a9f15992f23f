"""Export a plan to what shows or runs it, or an instance as a mixed-integer program, whose solutions come back."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.output import emit, note, require_output
from jigsaw_opt.cli.common.parser import file_or_stdout, option_of
from jigsaw_opt.cli.common.source import checked_plan, model_parts_of, picture_of
from jigsaw_opt.errors import CheckFailedError, UsageError, malformed, missing_option, not_together
from jigsaw_opt.text import agreeing, counted, named

if TYPE_CHECKING:
    from jigsaw_opt.planning.pipeline.torch_csv import CsvFormat
    from jigsaw_opt.problem.instance import Instance

EXAMPLE = "jigsaw export server/demo --to mps -o program.mps"
_PIPELINES = ("torch-csv", "torchtitan", "megatron-layout")
_OF_STAGES = ("torchtitan", "megatron-layout")
_ONLY = {
    "replay": ("perfetto",),
    "format": ("torch-csv",),
    "partition": _OF_STAGES,
    "layers": _OF_STAGES,
    "batch": ("torchtitan",),
    "layout_of": ("megatron-layout",),
    "max_coefficients": ("mps", "lp"),
}
"""Formats that an option goes with."""
_SECONDS_BETWEEN_NOTES = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("instance", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument(
        "plan", nargs="?", type=Path, metavar="PLAN", help="a plan document; not for a program or a shop"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a replay of the plan, traced beside it")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", choices=("perfetto", "chakra", "mps", "lp", "jsplib", *_PIPELINES), help="format")
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
    _configure_stages(parser.add_argument_group("modules of a pipeline's stages, for torchtitan and megatron-layout"))
    parser.add_argument(
        "--max-coefficients",
        type=int,
        metavar="N",
        help="write programs of at most so many coefficients (5000000)",
    )


def _configure_stages(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--partition",
        type=Path,
        metavar="FILE",
        help="which layers each stage has: what jigsaw partition -o or jigsaw pipeline --cuts has written",
    )
    group.add_argument("--layers", type=Path, metavar="FILE", help="the layer profile, where its layers name modules")
    group.add_argument("--batch", type=int, metavar="N", help="torchtitan: samples of a step on a rank")
    group.add_argument(
        "--layout-of",
        metavar="PATTERNS",
        help="megatron-layout: kinds of modules by patterns of their names, as in 'blocks.*=t,stem=E,head=L,norm=-'",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the trace, the program, or the plan of its solution."""
    if arguments.to != "chakra":
        require_output(arguments.output, arguments.instance, arguments.plan, arguments.replay, arguments.read_solution)
    planned = ("perfetto", "chakra", *_PIPELINES)
    if arguments.to in planned and arguments.plan is None:
        raise missing_option(
            "--to", f"{arguments.to} needs a plan: jigsaw export INSTANCE PLAN --to {arguments.to} -o FILE"
        )
    if arguments.to not in planned and arguments.plan is not None:
        raise not_together("--to", f"a plan goes with {_formats(planned)} only")
    for option, formats in _ONLY.items():
        if getattr(arguments, option) is not None and arguments.to not in formats:
            raise not_together(option_of(option), f"{option_of(option)} goes with {_formats(formats)} only")
    if arguments.to in _OF_STAGES and arguments.partition is None:
        raise missing_option(
            "--partition", f"{arguments.to} has the modules of each stage: give the partition, --partition FILE"
        )
    if arguments.to == "chakra":
        return _chakra(arguments)
    makers: dict[str | None, Callable[[argparse.Namespace], bytes]] = {
        "perfetto": _trace,
        "mps": _program,
        "lp": _program,
        "jsplib": _shop,
        "torch-csv": _torch_csv,
        "torchtitan": _torchtitan,
        "megatron-layout": _megatron_layout,
        None: _plan,
    }
    emit(makers[arguments.to](arguments), arguments.output)
    return 0


def _formats(names: Sequence[str]) -> str:
    return " and ".join(f"--to {name}" for name in names)


def _trace(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.views.perfetto import perfetto_trace

    return perfetto_trace(picture_of(*checked_plan(arguments.instance, arguments.plan), arguments.replay))


def _chakra(arguments: argparse.Namespace) -> int:
    """Write a trace for each GPU into the folder, as files whose names end in the rank."""
    from jigsaw_opt.documents import exists, make_folder
    from jigsaw_opt.documents.readers.chakra.trace import encode_trace
    from jigsaw_opt.planning.chakra import chakra_traces

    folder: Path | None = arguments.output
    if folder is None or (exists(folder) and not folder.is_dir()):
        raise UsageError("chakra writes a file for each GPU: give -o FOLDER", code="unwritable")
    made = chakra_traces(*checked_plan(arguments.instance, arguments.plan))
    names = [f"plan.{rank}.et" for rank in range(len(made.gpus))]
    traces = list(map(encode_trace, made.nodes))
    make_folder(folder, names, (arguments.instance, arguments.plan))
    paths = [folder / name for name in names]
    for rank, (path, trace) in enumerate(zip(paths, traces, strict=True)):
        note(f"rank {rank} is GPU {made.gpus[rank]}")
        emit(trace, path)
    if made.all_reduces:
        transfers = counted(made.all_reduces, "transfer")
        note(f"written as all-reduces, as a plan times them: {transfers} among several GPUs")
    if made.unsaid:
        note(f"not in the traces: {counted(made.unsaid, 'wait')} between GPUs that share no transfer")
    return 0


def _torch_csv(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.planning.pipeline.torch_csv import KNOWN_TORCH, torch_schedule

    form: CsvFormat = arguments.format or "compute_only"
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    found = torch_schedule(instance, plan, form)
    _tell_others(instance, found.job)
    if found.recomputed:
        note(f"{_recomputing(found.recomputed)}, which the file has no word for: what runs it must see to it")
    note(f"a schedule for torch.distributed.pipelining as PyTorch {KNOWN_TORCH} reads it, in the format {form}")
    return found.csv.encode()


def _tell_others(instance: Instance, pipeline: int) -> None:
    others = [job.name for number, job in enumerate(instance.jobs) if number != pipeline]
    if others:
        note(f"left out: {agreeing(len(others), 'job', 'jobs')} {', '.join(others)}; the file has the pipeline alone")


def _recomputing(stages: Sequence[int]) -> str:
    """Return which stages compute activations again, as the beginning of a sentence."""
    count = len(stages)
    verb = agreeing(count, "recomputes", "recompute")
    return f"{agreeing(count, 'stage', 'stages')} {named(list(map(str, stages)), count)} {verb}"


def _tell_recomputed(stages: Sequence[int], whole: int, framework: str) -> None:
    """Say how far the setting of a framework for all stages is from what the plan has."""
    if stages:
        others = "" if len(stages) == whole else "; the other stages, which the plan has without, will take longer"
        note(
            f"{_recomputing(stages)} activations: {framework} has one setting for all stages, "
            f"and keeps the input of each layer, where the plan keeps that of a stage{others}"
        )


def _torchtitan(arguments: argparse.Namespace) -> bytes:
    """Return the configuration, when the schedule's file beside it is written."""
    from jigsaw_opt.planning.pipeline.model_parts import KNOWN_TORCHTITAN, torchtitan_configuration, torchtitan_names
    from jigsaw_opt.planning.pipeline.torch_csv import torch_schedule

    if arguments.output is None or arguments.output.suffix in ("", ".csv"):
        raise missing_option("-o", "torchtitan writes a configuration, and a schedule beside it: give -o FILE.toml")
    csv = arguments.output.with_suffix(".csv")
    require_output(csv, arguments.instance, arguments.plan, arguments.partition, arguments.layers)
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    found = torch_schedule(instance, plan)
    stages = found.layout.stages
    parts = torchtitan_names(model_parts_of(instance, found.job, stages, arguments.partition, arguments.layers))
    made = torchtitan_configuration(parts, found.layout, str(csv), arguments.batch, found.recomputed)
    _tell_others(instance, found.job)
    _tell_recomputed(found.recomputed, stages, "TorchTitan")
    if arguments.batch is None:
        note("--batch says how many samples a step has; the configuration has one for each micro-batch")
    note(f"a configuration for TorchTitan {KNOWN_TORCHTITAN}; later versions take these values in ParallelismConfig")
    emit(found.csv.encode(), csv)
    return made.encode()


def _megatron_layout(arguments: argparse.Namespace) -> bytes:
    from shlex import quote

    from jigsaw_opt.planning.pipeline.model_parts import MEGATRON_RECOMPUTES, megatron_layout
    from jigsaw_opt.planning.pipeline.stated import pipeline_of, recomputed_stages
    from jigsaw_opt.problem.task_graph import TaskGraphJob

    instance, plan = checked_plan(arguments.instance, arguments.plan)
    job, layout = pipeline_of(instance, plan)
    parts = model_parts_of(instance, job, layout.stages, arguments.partition, arguments.layers)
    text = megatron_layout(parts, layout, _kinds(arguments.layout_of))
    _tell_others(instance, job)
    asked = instance.jobs[job]
    assert isinstance(asked, TaskGraphJob), "a pipeline has a task graph"
    recomputed = recomputed_stages(asked.shape)
    _tell_recomputed(recomputed, layout.stages, "Megatron")
    again = f" {MEGATRON_RECOMPUTES}" if recomputed else ""
    virtual = counted(layout.stages // layout.gpus, "virtual stage")
    note(f"{virtual} a rank; Megatron orders passes itself, not as the plan does")
    line = f"--pipeline-model-parallel-size {layout.gpus} --pipeline-model-parallel-layout {quote(text)}{again}\n"
    return line.encode()


def _kinds(text: str | None) -> list[tuple[str, str]]:
    """Return patterns of names with their kinds."""
    found = []
    for word in [] if text is None else text.split(","):
        pattern, _, kind = word.strip().rpartition("=")
        if not pattern:
            raise malformed("--layout-of", f"--layout-of takes PATTERN=KIND, as in 'blocks.*=t,head=L', not {word!r}")
        found.append((pattern, kind))
    return found


def _program(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.solvers.ilp import MOST_EXPORTED, model_document

    most = MOST_EXPORTED if arguments.max_coefficients is None else arguments.max_coefficients
    instance = instance_from(arguments.instance)
    if instance.moving_jobs:
        note("the program has plans in which no job moves; where jobs have a restart_us, others may be better")
    return model_document(instance, arguments.to, most, _progress())


def _shop(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.documents.job_shops import jsplib_text
    from jigsaw_opt.instances.sources import instance_from

    return jsplib_text(instance_from(arguments.instance)).encode()


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


def _plan(arguments: argparse.Namespace) -> bytes:
    from jigsaw_opt.checking import check
    from jigsaw_opt.documents import encode_plan
    from jigsaw_opt.documents.file_bytes import read_text
    from jigsaw_opt.documents.readers.solutions import read_solution
    from jigsaw_opt.instances.sources import instance_from
    from jigsaw_opt.solvers.ilp.solution import plan_of_solution

    path, instance = arguments.read_solution, instance_from(arguments.instance)
    solution = read_solution(read_text(path), str(path))
    plan = plan_of_solution(instance, solution, str(path))
    violations = check(instance, plan)
    if violations:
        raise CheckFailedError(
            f"the plan of {path} is wrong in {counted(len(violations), 'place')}, first {violations[0]}"
        )
    stated = "no objective" if solution.objective is None else f"{instance.objective} {solution.objective:,.1f}"
    note(f"{solution.engine}: the file states {stated}; the plan has {plan.objective:,} in exact times")
    return encode_plan(plan)
