"""What is simulated, in the arguments of `jigsaw simulate`, `jigsaw advise` and `jigsaw when`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

_TOO_WIDE: Mapping[str, Any] = {
    "choices": ("refuse", "skip"),
    "help": "what becomes of a workload with a job of more GPUs than the cluster has: refuse it, or skip the job"
    " (default: refuse)",
}
_PARTS: Mapping[str, Mapping[str, Any]] = {
    "columns": {
        "metavar": "OURS=THEIRS,...",
        "help": "what a workload in CSV calls its columns, as in gpus=num_gpu,submit_s=time,duration_s=duration",
    },
    "cluster": {
        "required": True,
        "metavar": "SERVERSxGPUS:TYPE|FILE|NAME",
        "help": "as in 16x4:v100 or 6x4:aws+3x8:rtx, or the cluster and the models of an instance",
    },
    "performance": {
        "metavar": "KIND[:SOURCE]",
        "help": "how fast jobs run, as in profiled:instance.json or epochs:FOLDER"
        " (default: the models of the cluster's instance, or else an iteration a second)",
    },
    "contention": {
        "metavar": "KIND",
        "help": "how jobs share links: exclusive (planned, none), fair, or degraded:LOSS (default: exclusive)",
    },
    "round": {
        "type": float,
        "dest": "round_s",
        "metavar": "SECONDS",
        "help": "seconds between decisions; 0: at once (default: 60)",
    },
    "restart": {
        "type": float,
        "dest": "restart_s",
        "metavar": "SECONDS",
        "help": "pause of a job that starts on other GPUs (default: 30)",
    },
    "draw-models": {"action": "store_true", "help": "draw each job's model from those of the instance"},
    "foreground-gpus": {
        "type": int,
        "metavar": "N",
        "help": "jobs of at least N GPUs are in the foreground, beside those that the workload names",
    },
    "too-wide": _TOO_WIDE,
    "speeds": {
        "metavar": "TYPE=SPEED,...",
        "help": "how fast types of GPU are against each other, as in a100=1,v100=0.43, for jobs that state durations"
        " (default: estimates where the cluster has several types)",
    },
    "failures": {
        "metavar": "mtbf=HOURS,mttr=HOURS[,links=HOURS][,checkpoint=SECONDS]|FILE",
        "help": "servers, and links, that fail and come back: drawn by --seed, or events in CSV",
    },
}
"""Arguments of everything but workload, policy and seed."""


def configure_setting(parser: argparse.ArgumentParser, names: Iterable[str] = _PARTS) -> None:
    """Add arguments of everything but workload, policy and seed; what is not given has no value."""
    for name in names:
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS, **_PARTS[name])


def add_too_wide(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says what becomes of jobs that are wider than the cluster."""
    parser.add_argument("--too-wide", default="refuse", **_TOO_WIDE)


def given_parts(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parts of a simulation that are given, by name, without workload, policy and seed."""
    names = (part.get("dest", name.replace("-", "_")) for name, part in _PARTS.items())
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
