"""What is simulated, in the arguments of `jigsaw simulate`, `jigsaw advise` and `jigsaw when`."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from jigsaw_opt.cli.common.arguments import Arguments

TOO_WIDE = "what becomes of a workload with a job of more GPUs than the cluster has: refuse it, or skip the job"
SETTING: Arguments = {
    "--columns OURS=THEIRS,...": "what a workload in CSV calls its columns, as in"
    " gpus=num_gpu,submit_s=time,duration_s=duration",
    "--cluster SERVERSxGPUS:TYPE|FILE|NAME !": "as in 16x4:v100 or 6x4:aws+3x8:rtx, or the cluster and the models of"
    " an instance",
    "--performance KIND[:SOURCE]": "how fast jobs run: epochs, goodput, profiled, seconds, stages or table, as in"
    " profiled:instance.json or epochs:FOLDER (default: profiled where the cluster is an instance, or else seconds: an"
    " iteration a second)",
    "--contention KIND": "how jobs share links: exclusive (planned, none), fair, or degraded:LOSS (default: exclusive)",
    "--round SECONDS": {"help": "seconds between decisions; 0: at once (default: 60)", "dest": "round_s"},
    "--restart SECONDS": {"help": "pause of a job that starts on other GPUs (default: 30)", "dest": "restart_s"},
    "--draw-models": "draw each job's model from those of the instance",
    "--foreground-gpus N": "jobs of at least N GPUs are in the foreground, beside those that the workload names",
    "--too-wide refuse|skip": f"{TOO_WIDE} (default: refuse)",
    "--speeds TYPE=SPEED,...": "how fast types of GPU are against each other, as in a100=1,v100=0.43, for jobs that"
    " state durations (default: estimates where the cluster has several types)",
    "--efficiency goodput|raw": "what an iteration below full depth counts for: its progress by the efficiency of its"
    " model, or a whole one (default: goodput)",
    "--failures mtbf=HOURS,mttr=HOURS[,links=HOURS][,checkpoint=SECONDS]|FILE": "servers, and links, that fail and"
    " come back: drawn by --seed, or events in CSV",
}
"""Arguments of everything but workload, policy and seed."""


def setting_arguments(*names: str) -> Arguments:
    """Return those of these arguments that have the names, in the order of the names."""
    return {written: SETTING[written] for name in names for written in SETTING if written.split()[0] == f"--{name}"}


def given_parts(arguments: Namespace) -> dict[str, Any]:
    """Return the parts of a simulation that are given, by name, without workload, policy and seed."""
    from jigsaw_opt.simulation.inputs.request import GivenParts

    given = {
        name: getattr(arguments, name, None) for name in ("cluster", *GivenParts.__annotations__) if name != "seed"
    }
    return {name: value for name, value in given.items() if value is not None and value is not False}
