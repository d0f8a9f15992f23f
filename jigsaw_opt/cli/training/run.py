"""Carry a plan out with PyTorch, one process a GPU, and compare what was predicted with what is measured."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jigsaw_opt.cli.common.arguments import PLAN, PROGRESS, Arguments
from jigsaw_opt.cli.common.options import checked_plan, warn_of_levels
from jigsaw_opt.cli.common.output import emit, ended, goes_on_from, require_output
from jigsaw_opt.cli.common.progress import logged_progress
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from jigsaw_opt.executor.replay.records import InterruptedRunError
    from jigsaw_opt.problem.measured.replay import Replay


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


ARGUMENTS: Arguments = {
    **PLAN,
    "-o, --output FILE": "write the replay document here",
    "--json": "print the summary as JSON",
    "one of:": {
        "--iterations N": {
            "help": "times that the plan is carried out; of a phased plan, at most so many repetitions of each"
            " phase (default: 1; cyclic and phased: 10)",
            "dest": "passes",
        },
        "--minutes M": {"help": "carry it out again and again for so many minutes", "type": float},
    },
    "--dry": "train nothing: jobs sleep for as long as the plan says, in its order",
    "--time-triggered": "start nothing before its planned start",
    "--baseline fifo|gang|alone": "then the same jobs at full depth, one at a time on its GPUs; or those of the"
    " foreground alone",
    "--foreground NAME[,NAME]": {
        "help": "jobs that the baseline alone has (default: the only one with a cycle-time limit)",
        "type": _names,
        "action": "extend",
        "default": [],
    },
    **PROGRESS,
    "machine:": {
        "--device cpu|cuda = cpu": "where to run",
        "--backend gloo|nccl = gloo": "nccl: a device for each process",
        "--threads N = 1": "threads of a process on the CPU",
        "--trust MODULE:FUNCTION *": {"help": "code to import", "dest": "trusted"},
        "--partition FILE": "a pipeline: stages with their layers, which are modules of the model that the"
        " function returns",
        "--warm-up N = 2": "rounds before the clock starts",
    },
    "training:": {
        "--optimiser sgd|adam|adamw = sgd": "optimiser of the zoo's jobs (default: sgd, with momentum)",
        "--learning-rate R = 0.01": {"help": "learning rate of the zoo's jobs", "type": float},
        "--averaging avg_w_count|avg = avg_w_count": "how gradients of data-parallel jobs are averaged",
        "--seed N = 0": "seed of parameters and data",
    },
    "checkpoints:": {
        "--checkpoint DIR": "save all workers here",
        "--checkpoint-every N": {"help": "after N iterations of a job and at the end", "dest": "every"},
        "--resume": "go on from the last whole checkpoint in DIR",
    },
}


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
    if not settings.dry:
        warn_of_levels(instance, plan)
    try:
        with logged_progress(arguments, "a dry run" if settings.dry else "training"):
            found = run_plan(ReplayRequest(instance, plan, **vars(settings)))
    except InterruptedRunError as interrupted:
        _write(interrupted.found, arguments)
        return ended(True, _kept(interrupted, arguments))
    _write(found, arguments)
    return 0


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
