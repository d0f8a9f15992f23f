"""Carry a plan out with PyTorch, one process a GPU, and compare what was predicted with what is measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.options import add_plan, warn_of_levels
from jigsaw_opt.cli.common.output import emit, ended, goes_on_from, require_output
from jigsaw_opt.cli.common.progress import add_progress, logged_progress
from jigsaw_opt.cli.common.source import checked_plan
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from jigsaw_opt.executor.replay.records import InterruptedRunError
    from jigsaw_opt.problem.measured.replay import Replay


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_plan(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the replay document here")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--iterations",
        dest="passes",
        type=int,
        metavar="N",
        help="times that the plan is carried out; of a phased plan, at most so many repetitions of each phase "
        "(default: 1; cyclic and phased: 10)",
    )
    length.add_argument("--minutes", type=float, metavar="M", help="carry it out again and again for so many minutes")
    parser.add_argument("--time-triggered", action="store_true", help="start nothing before its planned start")
    parser.add_argument(
        "--baseline",
        choices=("fifo", "gang", "alone"),
        help="then the same jobs at full depth, one at a time on its GPUs; or those of the foreground alone",
    )
    parser.add_argument(
        "--foreground",
        action="extend",
        type=_names,
        default=[],
        metavar="NAME[,NAME]",
        help="jobs that the baseline alone has (default: the only one with a cycle-time limit)",
    )
    add_progress(parser)
    _configure_machine(parser)
    _configure_training(parser)
    saving = parser.add_argument_group("checkpoints")
    saving.add_argument("--checkpoint", type=Path, metavar="DIR", help="save all workers here")
    saving.add_argument(
        "--checkpoint-every", dest="every", type=int, metavar="N", help="after N iterations of a job and at the end"
    )
    saving.add_argument("--resume", action="store_true", help="go on from the last whole checkpoint in DIR")


def _configure_machine(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("machine")
    machine.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run (default: cpu)")
    machine.add_argument(
        "--backend", choices=("gloo", "nccl"), default="gloo", help="nccl: a device for each process (default: gloo)"
    )
    machine.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of a process on the CPU (default: 1)"
    )
    machine.add_argument(
        "--trust", dest="trusted", action="append", default=[], metavar="MODULE:FUNCTION", help="code to import"
    )
    machine.add_argument(
        "--partition",
        type=Path,
        metavar="FILE",
        help="a pipeline: stages with their layers, which are modules of the model that the function returns",
    )
    machine.add_argument(
        "--warm-up", type=int, default=2, metavar="N", help="rounds before the clock starts (default: 2)"
    )


def _configure_training(parser: argparse.ArgumentParser) -> None:
    training = parser.add_argument_group("training")
    training.add_argument(
        "--optimiser",
        choices=("sgd", "adam", "adamw"),
        default="sgd",
        help="optimiser of the zoo's jobs (default: sgd, with momentum)",
    )
    training.add_argument(
        "--learning-rate", type=float, default=0.01, metavar="R", help="learning rate of the zoo's jobs (default: 0.01)"
    )
    training.add_argument(
        "--averaging",
        choices=("avg_w_count", "avg"),
        default="avg_w_count",
        help="how gradients of data-parallel jobs are averaged (default: avg_w_count)",
    )
    training.add_argument("--seed", type=int, default=0, metavar="N", help="seed of parameters and data (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Carry the plan out, print the summary, write the replay."""
    from dataclasses import fields

    from jigsaw_opt.executor import require_torch
    from jigsaw_opt.executor.replay.records import InterruptedRunError
    from jigsaw_opt.executor.replay.request import ReplayRequest, ReplaySettings
    from jigsaw_opt.executor.run_plan import run_plan

    require_output(arguments.output, arguments.instance, arguments.plan)
    # What is out of range is told before any file is read.
    given = {each.name: getattr(arguments, each.name) for each in fields(ReplaySettings)}
    given |= {name: tuple(given[name]) for name in ("trusted", "foreground")}
    settings = ReplaySettings(**given)
    if arguments.resume:
        goes_on_from(arguments.checkpoint)
    instance, plan = checked_plan(arguments.instance, arguments.plan)
    require_torch()
    warn_of_levels(instance, plan)
    try:
        with logged_progress(arguments, "training"):
            found = run_plan(ReplayRequest(instance, plan, **vars(settings)))
    except InterruptedRunError as interrupted:
        _write(interrupted.found, arguments)
        return ended(True, _kept(interrupted, arguments))
    _write(found, arguments)
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _kept(interrupted: InterruptedRunError, arguments: argparse.Namespace) -> str:
    """Return what an interrupted run has kept, and how to go on."""
    measured = "nothing was measured" if interrupted.found is None else "what was measured is told above"
    if interrupted.saved is None:
        return f"{measured}; no worker is saved: --checkpoint DIR keeps them, to go on with --resume"
    saved = [f"{job} after {count} iterations" for job, count in interrupted.saved.items() if count]
    if not saved:
        how = "the same command and --resume begins anew"
        return f"{measured}; no job is saved as a whole yet in {arguments.checkpoint}; {how}"
    return f"{measured}; saved in {arguments.checkpoint}: {named(saved)}; go on with the same command and --resume"


def _write(found: Replay | None, arguments: argparse.Namespace) -> None:
    """Write what was measured, and print its summary; None, in all processes of torchrun but the first, is nothing."""
    from jigsaw_opt.cli.training.run_report import print_replay
    from jigsaw_opt.documents.replay import encode_replay

    if found is None:
        return
    try:
        if arguments.output is not None:
            emit(encode_replay(found), arguments.output)
    finally:
        print_replay(found, arguments.json)
