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
    ClusterEvent,
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobSubmitted,
    LinkDown,
    LinkUp,
    LiveScheduler,
    PlanChange,
    PriorityChanged,
    ServerAdded,
    ServerBack,
    ServerDrained,
    ServerLost,
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


class Happening:
    """Draws what happens next; it knows what a program that runs the cluster would know."""

    def __init__(self, text: str, seed: int) -> None:
        self._job, self._cluster, _ = CASES[text]
        self._draw = random.Random(seed)
        self._names: list[str] = []
        self._servers = [server.name for server in self._cluster.servers]
        self._count = 0
        self.now_us = 0

    def events(self) -> list[ClusterEvent]:
        """Some events before the next step."""
        return [self._event() for _ in range(self._draw.randrange(4))]

    def _event(self) -> ClusterEvent:
        draw, self.now_us = self._draw, self.now_us + self._draw.randrange(90 * SECOND)
        if draw.random() < 0.4 or not self._names:
            self._count += 1
            self._names.append(f"j{self._count}")
            return JobSubmitted(self.now_us, self._job(self._names[-1], draw))
        name, server = draw.choice(self._names), draw.choice(self._servers)
        link = draw.choice(self._cluster.links).name
        kind = draw.randrange(12)
        if kind < 4:
            return JobProgressed(self.now_us, name, draw.randrange(4000))
        if kind < 6:
            self._names.remove(name)
            return (JobFinished if kind == 4 else JobCancelled)(self.now_us, name)
        if kind == 6 and len(self._servers) < 6:
            like = self._cluster.servers[0]
            self._servers.append(f"new{len(self._servers)}")
            new = replace(like, name=self._servers[-1])
            return ServerAdded(self.now_us, new, (Link(f"to-{new.name}", (new.name, "switch"), 10**9, 10),))
        others: list[ClusterEvent] = [
            PriorityChanged(self.now_us, name, draw.randrange(1, 9)),
            ServerDrained(self.now_us, server),
            ServerLost(self.now_us, server),
            ServerBack(self.now_us, server),
            LinkDown(self.now_us, link),
            LinkUp(self.now_us, link),
        ]
        return draw.choice(others)


def in_json(value: Any) -> Any:
    """What is left of a value when it was written and read."""
    return json.loads(json.dumps(value, allow_nan=False))


def run(live: LiveScheduler, happening: Happening, steps: int) -> list[PlanChange]:
    """The changes of so many steps."""
    found = []
    for _ in range(steps):
        for event in happening.events():
            live.handle(event)
        found.append(live.step(happening.now_us))
    return found


def runs(live: LiveScheduler) -> dict[str, tuple[str, ...]]:
    """What each job runs on as the state has it."""
    state = live.state()
    names = {one["figures"]["job"]: one["trace"]["name"] for one in state["jobs"]}
    gpus = live.cluster.gpus.names
    return {
        names[index]: tuple(gpus[gpu] for gpu in share["gpus"]) for share in state["shares"] for index in share["jobs"]
    }
