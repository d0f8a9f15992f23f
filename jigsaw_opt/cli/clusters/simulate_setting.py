"""What is simulated, in the arguments of `jigsaw simulate` and `jigsaw advise`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jigsaw_opt.cli.common.output import note
from jigsaw_opt.errors import malformed

if TYPE_CHECKING:
    from jigsaw_opt.problem.workload import TraceJob
    from jigsaw_opt.simulation.engine.setting import Setting


def configure_setting(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of everything but workload, policy and seed."""
    add_columns(parser)
    add_cluster(parser)
    parser.add_argument(
        "--performance",
        default="",
        metavar="KIND[:SOURCE]",
        help="how fast jobs run, as in profiled:instance.json or epochs:FOLDER"
        " (default: the models of the cluster's instance, or else an iteration a second)",
    )
    parser.add_argument(
        "--contention",
        default="exclusive",
        metavar="KIND",
        help="how jobs share links: exclusive (planned, none), fair, or degraded:LOSS (default: exclusive)",
    )
    parser.add_argument(
        "--round",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds between decisions; 0: at once (default: 60)",
    )
    parser.add_argument(
        "--restart",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="pause of a job that starts on other GPUs (default: 30)",
    )
    parser.add_argument("--draw-models", action="store_true", help="draw each job's model from those of the instance")
    parser.add_argument(
        "--foreground-gpus",
        type=int,
        metavar="N",
        help="jobs of at least N GPUs are in the foreground, beside those that the workload names",
    )
    add_too_wide(parser)
    add_speeds(parser)
    parser.add_argument(
        "--failures",
        default="",
        metavar="mtbf=HOURS,mttr=HOURS[,links=HOURS][,checkpoint=SECONDS]|FILE",
        help="servers, and links, that fail and come back: drawn by --seed, or events in CSV",
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says what a table calls our columns."""
    parser.add_argument(
        "--columns",
        default="",
        metavar="OURS=THEIRS,...",
        help="what a workload in CSV calls its columns, as in gpus=num_gpu,submit_s=time,duration_s=duration",
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says which servers there are."""
    parser.add_argument(
        "--cluster",
        required=True,
        metavar="SERVERSxGPUS:TYPE|FILE|NAME",
        help="as in 16x4:v100 or 6x4:aws+3x8:rtx, or the cluster and the models of an instance",
    )


def add_speeds(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says how fast types of GPU are."""
    parser.add_argument(
        "--speeds",
        default="",
        metavar="TYPE=SPEED,...",
        help="how fast types of GPU are against each other, as in a100=1,v100=0.43, for jobs that state durations"
        " (default: estimates where the cluster has several types)",
    )


def add_too_wide(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says what becomes of jobs that are wider than the cluster."""
    parser.add_argument(
        "--too-wide",
        choices=("refuse", "skip"),
        default="refuse",
        help="what becomes of a workload with a job of more GPUs than the cluster has: refuse it, or skip the job"
        " (default: refuse)",
    )


def parts_of(arguments: argparse.Namespace, workload: str, policy: str, seed: int) -> dict[str, Any]:
    """Return the arguments of `jigsaw_opt.simulate` by name."""
    return {
        "workload": workload,
        "cluster": arguments.cluster,
        "policy": policy,
        "performance": arguments.performance,
        "contention": arguments.contention,
        "round_s": arguments.round,
        "restart_s": arguments.restart,
        "draw_models": arguments.draw_models,
        "seed": seed,
        "foreground_gpus": arguments.foreground_gpus,
        "failures": arguments.failures,
        "columns": arguments.columns,
        "too_wide": arguments.too_wide,
        "speeds": arguments.speeds,
    }


def tell_reading(settings: Iterable[Setting], waiting: Sequence[TraceJob] = ()) -> None:
    """Say on standard error what was left out of each workload, what else was decided, and what is not read, once."""
    told: dict[str, None] = {}
    policies: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for one in settings:
        lines = one.workload.reading_told(with_unfinished=bool(waiting))
        told |= dict.fromkeys(f"{one.workload.name}: {line}" for line in lines)
        if one.policy is not None and (unread := one.unread(waiting)):
            policies[one.workload.name, unread][repr(one.policy.name)] = None
    for (name, unread), those in policies.items():
        verb = "policies {} do" if len(those) > 1 else "policy {} does"
        told[f"{name}: {verb.format(', '.join(those))} not read what sets jobs apart: {unread}"] = None
    for line in told:
        note(line)


def inputs_of(arguments: argparse.Namespace, workloads: Iterable[str]) -> list[str]:
    """Return the names of the files that a simulation reads, and words that are no files, which do no harm."""
    failures = arguments.failures.partition(",checkpoint=")[0]
    words = (*workloads, arguments.cluster, arguments.performance, failures)
    return [*words, *(word.partition(":")[2] for word in words)]


def seeds_of(text: str) -> list[int]:
    """Return seeds as in ``0,1,2``."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as error:
        raise malformed("--seeds", f"--seeds are whole numbers between commas, not {text!r}") from error
