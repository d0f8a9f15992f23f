"""Carry a plan out with PyTorch, one process a GPU, and compare what was predicted with what is measured."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.options import warn_of_levels
from jigsaw_opt.cli.common.output import emit, ended, goes_on_from, note, require_output
from jigsaw_opt.cli.common.parser import option_of
from jigsaw_opt.cli.common.progress import add_progress, logged_progress
from jigsaw_opt.cli.common.source import checked_plan
from jigsaw_opt.errors import UsageError, missing_option, not_together
from jigsaw_opt.text import named

if TYPE_CHECKING:
    from jigsaw_opt.executor.replay.records import InterruptedRunError
    from jigsaw_opt.executor.replay.request import ReplaySettings
    from jigsaw_opt.problem import Instance, Plan
    from jigsaw_opt.problem.measured.replay import Replay

_PERIODS = 10
"""Repetitions where nobody says how many."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("first", metavar="INSTANCE", help="an instance document, or the name of a bundled instance")
    parser.add_argument("second", nargs="?", metavar="PLAN", help="a plan document of either kind")
    parser.add_argument("--instance", metavar="I", help="the instance, where the plan is named alone")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the replay document here")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--iterations", type=int, metavar="N", help="times that the plan is carried out (default: 1; cyclic: 10)"
    )
    length.add_argument(
        "--repeats", type=int, metavar="N", help="phased plans: repetitions of each phase, at most (default: 10)"
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
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="jobs that the baseline alone has (default: the only one with a cycle-time limit)",
    )
    add_progress(parser)
    _configure_machine(parser)
    _configure_training(parser)
    saving = parser.add_argument_group("checkpoints")
    saving.add_argument("--checkpoint", type=Path, metavar="DIR", help="save all workers here")
    saving.add_argument("--checkpoint-every", type=int, metavar="N", help="after N iterations of a job and at the end")
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
    machine.add_argument("--trust", action="append", default=[], metavar="MODULE:FUNCTION", help="code to import")
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
        help="optimiser of the zoo's jobs (default: sgd, with momentum)",
    )
    training.add_argument(
        "--learning-rate", type=float, metavar="R", help="learning rate of the zoo's jobs (default: 0.01)"
    )
    training.add_argument(
        "--averaging",
        choices=("avg_w_count", "avg"),
        help="how gradients of data-parallel jobs are averaged (default: avg_w_count)",
    )
    training.add_argument("--seed", type=int, default=0, metavar="N", help="seed of parameters and data (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Carry the plan out, print the summary, write the replay."""
    from jigsaw_opt.executor import require_torch
    from jigsaw_opt.executor.replay.records import InterruptedRunError

    source, path = _documents(arguments)
    require_output(arguments.output, source, path)
    settings = _settings(arguments)
    if arguments.resume:
        goes_on_from(arguments.checkpoint)
    instance, plan = checked_plan(source, path)
    if arguments.partition is not None:
        settings = replace(settings, **_parts(arguments.partition, instance, plan))
    _say_who_has_own_settings(arguments, instance)
    require_torch()
    _warn_of_estimates(instance)
    warn_of_levels(instance, plan)
    try:
        with logged_progress(arguments, "training"):
            found = _run(arguments, settings, instance, plan)
    except InterruptedRunError as interrupted:
        _write(interrupted.found, arguments)
        return ended(True, _kept(interrupted, arguments))
    _write(found, arguments)
    return 0


def _parts(path: Path, instance: Instance, plan: Plan) -> dict[str, Any]:
    """Return stages of a pipeline by its partition, and the first module of each but the first."""
    from jigsaw_opt.planning.pipeline.model_parts import stated_parts
    from jigsaw_opt.planning.pipeline.stated import pipeline_of
    from jigsaw_opt.planning.pipeline.torch_csv import flow_schedule

    flow = flow_schedule(instance)
    job, layout = pipeline_of(instance, plan) if flow is None else (flow.job, flow.layout)
    parts = stated_parts(instance, job, layout.stages, path)[0].stages
    return {"parts": parts, "cuts": tuple(part.nodes[0] for part in parts[1:])}


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


def _documents(arguments: argparse.Namespace) -> tuple[str, Path]:
    """Return the instance, and the path of the plan."""
    given = [source for source in (arguments.instance, arguments.first, arguments.second) if source is not None]
    if len(given) != 2:
        raise missing_option("plan", "an instance and a plan are wanted, as in: jigsaw run INSTANCE PLAN")
    return given[0], Path(given[1])


def _warn_of_estimates(instance: Instance) -> None:
    """Say which models have times that nobody measured, so that the plan's times may be far from those of a run."""
    from jigsaw_opt.instances.profiles import is_estimate
    from jigsaw_opt.problem.job import Job

    models = {job.model for job in instance.jobs if isinstance(job, Job)}
    estimated = sorted(filter(is_estimate, models))
    if estimated:
        note(f"warning: estimated, not measured, are the times of {', '.join(estimated)}; jigsaw profile measures them")


def _say_who_has_own_settings(arguments: argparse.Namespace, instance: Instance) -> None:
    """Say which jobs do not heed settings of training that were given; raise `UsageError` where none does."""
    from jigsaw_opt.problem.job import Job

    jobs = [job for job in instance.jobs if isinstance(job, Job)]
    in_stages = [job.name for job in instance.jobs if not isinstance(job, Job)]
    if arguments.averaging is not None and in_stages:
        if not jobs:
            raise UsageError(
                "--averaging: no job is data-parallel, so nobody heeds it", code="unsupported", path="--averaging"
            )
        note(f"--averaging: not for {named(in_stages)}, which have stages")
    names = ("optimiser", "learning_rate")
    given = [option_of(name) for name in names if getattr(arguments, name) is not None]
    if given and in_stages:
        note(f"{' and '.join(given)}: for {named(in_stages)} only where the function returns no optimiser of its own")
    own = [job.name for job in jobs if "train" in (instance.models[job.model].executor or {})]
    if not given or not own:
        return
    if len(own) == len(instance.jobs):
        raise UsageError(
            f"{' and '.join(given)}: every job trains as its own code says, so nobody heeds it",
            code="unsupported",
            path=", ".join(given),
        )
    note(f"{' and '.join(given)}: not for {named(own)}, which train as their own code says")


def _run(arguments: argparse.Namespace, settings: ReplaySettings, instance: Instance, plan: Plan) -> Replay | None:
    from jigsaw_opt.executor.replay.request import ReplayRequest
    from jigsaw_opt.executor.run_plan import run_plan

    counted = any(phase.is_counted for _, _, phase in plan.all_phases())
    if counted and arguments.iterations is not None:
        raise not_together(
            "--iterations", "--iterations is for plans that list all iterations; this one is phased: take --repeats"
        )
    if not counted and arguments.repeats is not None:
        raise not_together(
            "--repeats", "--repeats is for phased plans; this one lists all iterations: take --iterations"
        )
    if _is_unlimited(arguments) and (counted or plan.period_us):
        settings = replace(settings, passes=_PERIODS)
    return run_plan(ReplayRequest(instance, plan, **vars(settings)))


def _is_unlimited(arguments: argparse.Namespace) -> bool:
    return arguments.iterations is None and arguments.repeats is None and arguments.minutes is None


def _settings(arguments: argparse.Namespace) -> ReplaySettings:
    """Return how to carry it out; what is out of range is told before any file is read."""
    from jigsaw_opt.executor.replay.request import ReplaySettings

    repeats = arguments.repeats
    optimiser: Any = arguments.optimiser or "sgd"
    rate = arguments.learning_rate
    momentum = {"momentum": 0.9} if optimiser == "sgd" else {}
    settings = ReplaySettings(
        passes=1 if _is_unlimited(arguments) else arguments.iterations if repeats is None else repeats,
        minutes=arguments.minutes,
        device=arguments.device,
        backend=arguments.backend,
        threads=arguments.threads,
        trusted=tuple(arguments.trust),
        optimiser=optimiser,
        options={"lr": 0.01 if rate is None else rate, **momentum},
        averaging=arguments.averaging or "avg_w_count",
        seed=arguments.seed,
        warm_up=arguments.warm_up,
        time_triggered=arguments.time_triggered,
        baseline=arguments.baseline,
        foreground=tuple(name.strip() for group in arguments.foreground for name in group.split(",")),
        checkpoint=arguments.checkpoint,
        every=arguments.checkpoint_every,
        resume=arguments.resume,
    )
    problems = tuple(settings.problems())
    if problems:
        raise UsageError.of(problems)
    return settings
