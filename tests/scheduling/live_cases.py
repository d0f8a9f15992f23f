"""Live schedulers of every policy, and clusters to which something happens all the time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jigsaw_opt.problem.cluster import Cluster, Link, Server
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    LiveScheduler,
)
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.goodput import Goodput
from jigsaw_opt.scheduling.performance.profiles import ApplicationProfile
from jigsaw_opt.scheduling.performance.stages import Stages
from jigsaw_opt.scheduling.performance.table import Table
from tests.simulation.resumable import MODELS, RATES, STAGES, application

SECOND = 1_000_000


def star(*types: str, gpus: int = 4) -> Cluster:
    servers = tuple(Server(f"s{k}", t, gpus, 10**9, 10**10) for k, t in enumerate(types))
    links = tuple(Link(f"l{k}", (server.name, "switch"), 10**9, 10) for k, server in enumerate(servers))
    return Cluster(servers, ("switch",), links)


def goodput(cluster: Cluster) -> Performance:
    return Goodput(cluster, {"v": {"net": ApplicationProfile(application("v", 1.0))}})


def _segments(name: str, draw: random.Random) -> TraceJob:
    return TraceJob(name, 0, draw.choice(list(MODELS)), draw.choice((1, 2, 4, 4, 8)), draw.randrange(100, 5000))


def _measured(name: str, draw: random.Random) -> TraceJob:
    return TraceJob(name, 0, *draw.choice([("a", 1), ("b", 1), ("a", 2)]), draw.randrange(100, 9000))


def _adaptive(name: str, draw: random.Random) -> TraceJob:
    return TraceJob(name, 0, "net", 1, min_gpus=1, max_gpus=8, batch_size=128)


def _staged(name: str, draw: random.Random) -> TraceJob:
    model = draw.choice(list(STAGES))
    return TraceJob(name, 0, model, int(model[-1]), draw.randrange(50, 2000))


def _mixed(name: str, draw: random.Random) -> TraceJob:
    return replace(_segments(name, draw), foreground=draw.random() < 0.4)


def _classes(name: str, draw: random.Random) -> TraceJob:
    return replace(_segments(name, draw), priority=draw.randrange(3))


MadeJob = Callable[[str, random.Random], TraceJob]
CASES: dict[str, tuple[MadeJob, Cluster, dict[str, Any]]] = {
    **dict.fromkeys(("jigsaw", "las", "srtf"), (_segments, star("v", "v", "v"), {"models": MODELS})),
    "jigsaw:packing=columns": (_segments, star("v", "v"), {"models": MODELS}),
    "multifactor:estimates=recent": (_segments, star("v", "v"), {"models": MODELS}),
    "priority:grace=60": (_classes, star("v", "v"), {"models": MODELS}),
    "backfill:estimates=recent": (_segments, star("v", "v"), {"models": MODELS}),
    **dict.fromkeys(("fifo", "sjf_bco"), (_segments, star("v", "v"), {"models": MODELS, "round_us": 0})),
    **dict.fromkeys(("fill", "separate"), (_mixed, star("v", "v"), {"models": MODELS})),
    "gavel": (_measured, star("fast", "slow", "fast", gpus=2), {"performance": lambda cluster: Table(cluster, RATES)}),
    "sia": (_adaptive, star("v", "v", "v"), {"performance": goodput}),
    "interleave": (_staged, star("v", "v", gpus=2), {"performance": lambda cluster: Stages(STAGES)}),
}
"""Every policy that runs live, with jobs that it can run."""


def made(text: str, **more: Any) -> LiveScheduler:
    _, cluster, arguments = CASES[text]
    return LiveScheduler(cluster, text, **arguments, **more)


def in_json(value: Any) -> Any:
    """What is left of a value when it was written and read."""
    return json.loads(json.dumps(value, allow_nan=False))


def runs(live: LiveScheduler) -> dict[str, tuple[str, ...]]:
    """What each job runs on as the state has it."""
    state = live.state()
    names = {one["figures"]["job"]: one["trace"]["name"] for one in state["jobs"]}
    gpus = live.cluster.gpus.names
    return {
        names[index]: tuple(gpus[gpu] for gpu in share["gpus"]) for share in state["shares"] for index in share["jobs"]
    }
