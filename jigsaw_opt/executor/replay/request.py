"""What a replay is asked to do. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.replay import Policy

__all__ = ["Request"]


@dataclass(frozen=True)
class Request:
    """A plan and how to carry it out.

    Parameters
    ----------
    instance, plan
        A plan that is correct for the instance.
    passes, minutes
        How often to carry it out, or for how long; exactly one is given.
    device, backend, threads
        ``cpu`` or ``cuda``, ``gloo`` or ``nccl``, and threads of each process on the CPU.
    trusted
        ``module:function`` that may be imported.
    optimiser, options, averaging, seed
        How all jobs train; the seed is that of parameters and data of the
        first job, the next number that of the next job.
    warm_up
        Times that every iteration of a job that differs in its levels is run before the clock starts.
    pace
        Whether nothing starts before its planned start.
    baseline
        Replay the jobs a second time, the usual way.
    checkpoint, every, resume
        A folder, after how many iterations of a job its workers are saved there (None: only at the end), and whether
        to go on from what it holds.
    """

    instance: Instance
    plan: Plan
    passes: int | None = 1
    minutes: float | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    backend: Literal["gloo", "nccl"] = "gloo"
    threads: int = 1
    trusted: tuple[str, ...] = ()
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    options: Mapping[str, Any] = field(default_factory=lambda: {"lr": 0.01, "momentum": 0.9})
    averaging: Literal["avg_w_count", "avg"] = "avg_w_count"
    seed: int = 0
    warm_up: int = 2
    pace: bool = False
    baseline: Policy | None = None
    checkpoint: Path | None = None
    every: int | None = None
    resume: bool = False
