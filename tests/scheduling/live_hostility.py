"""Draws events of any kind: those that can be, odd ones at the edge, and hostile ones."""

from __future__ import annotations

import math
import random
from dataclasses import fields, replace
from typing import Any

from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.rules.keyed import Keyed, altered
from jigsaw_opt.scheduling import (
    GpuBack,
    GpuFailed,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRequeued,
    JobRunning,
    JobSubmitted,
    LinkDown,
    LinkUp,
    LiveScheduler,
    PriorityChanged,
    QuotaChanged,
    ServerAdded,
    ServerBack,
    ServerCordoned,
    ServerDrained,
    ServerLost,
    StartFailed,
)
from tests.scheduling.live_cases import CASES

NUMBERS = (0, -1, 1, 2, 3, 2.0, 0.5, math.nan, math.inf, -math.inf, 2**53 - 1, 2**53, 2**63, 10**40, -(10**400))
TEXTS = ("", "a", "j0", "s0", "l0", "a/b", "\n", "\x00", "\ud800", "x" * 1000, "x" * 1001, "v", "small", "switch", "2")
ENDS = (("s0", "switch"), ("s0",), ("s0", "s0"), ("s0", "s1", "s2"))
OTHERS: tuple[Any, ...] = (None, True, False, (), [], {}, object(), b"a", int, len, 1j, {"a": 1}, {1})
HOSTILE: tuple[Any, ...] = (*NUMBERS, *TEXTS, *ENDS, *OTHERS)
"""Values that stand anywhere."""


class Hostility:
    """Draws events for a live scheduler of one of the `CASES`, whose state it does not look at."""

    def __init__(self, text: str, draw: random.Random) -> None:
        self._job, self._cluster, _ = CASES[text]
        self._draw = draw
        self._names = [f"j{k}" for k in range(5)]
        self._servers = [*(server.name for server in self._cluster.servers), "new0", "new1"]
        self._links = [*(link.name for link in self._cluster.links), "to-new0", "to-new1"]
        self.now_us = 0

    def event(self) -> Any:
        """An event, or what is none."""
        kind = self._draw.random()
        if kind < 0.02:
            return self._draw.choice(HOSTILE)
        event = self._valid()
        if kind < 0.6:
            return event
        return self._spoilt(event)

    def step_us(self) -> int:
        """When the next step is."""
        self.now_us += self._draw.choice((0, 1, 10**6, 10**8, 10**11))
        return self.now_us

    def _spoilt(self, record: Any) -> Any:
        """A record in which one value is another, at any depth."""
        column = self._draw.choice(fields(record)).name
        value = getattr(record, column)
        other = altered if isinstance(record, Keyed) else replace  # parts of a cluster are made wrong past their checks
        if isinstance(value, tuple) and value and hasattr(value[0], "ends") and self._draw.random() < 0.8:
            return other(record, **{column: tuple(map(self._spoilt, value))})
        if hasattr(value, "__dataclass_fields__") and self._draw.random() < 0.8:
            return other(record, **{column: self._spoilt(value)})
        return other(record, **{column: self._draw.choice(HOSTILE)})

    def _valid(self) -> Any:
        """An event that may be valid."""
        draw, self.now_us = self._draw, self.now_us + self._draw.choice((0, 0, 1, 10**6, 3 * 10**7))
        now, name, server, link = self.now_us, *map(draw.choice, (self._names, self._servers, self._links))
        gpu = draw.choice(self._cluster.gpus.names)
        return draw.choice(
            (
                lambda: JobSubmitted(now, self._job(name, draw), draw.choice(("", "q"))),
                lambda: JobSubmitted(now, self._odd(self._job(name, draw)), draw.choice(("", "q"))),
                lambda: self._running(name),
                lambda: JobCancelled(now, name),
                lambda: JobFinished(now, name),
                lambda: JobProgressed(now, name, draw.choice((0, 0.5, 3, 4000, 1e24))),
                lambda: PriorityChanged(now, name, draw.choice((1, 2, 2**53 - 1)), draw.random() < 0.5),
                lambda: QuotaChanged(now, draw.choice(("", "q")), draw.choice((None, 0, 2, 8))),
                lambda: self._added(draw.choice(("new0", "new1"))),
                lambda: StartFailed(now, name, draw.choice(("", "no")), draw.choice(((), (gpu,)))),
                lambda: JobRequeued(now, name),
                lambda: JobHeld(now, name),
                lambda: JobReleased(now, name),
                lambda: ServerCordoned(now, server),
                lambda: ServerDrained(now, server),
                lambda: ServerLost(now, server),
                lambda: ServerBack(now, server),
                lambda: LinkDown(now, link),
                lambda: LinkUp(now, link),
                lambda: GpuFailed(now, gpu),
                lambda: GpuBack(now, gpu),
            )
        )()

    def _running(self, name: str) -> JobRunning:
        draw, job = self._draw, self._job(name, self._draw)
        names = self._cluster.gpus.names
        first = draw.randrange(len(names))
        gpus = names[first : first + draw.choice((job.gpus, job.gpus, 1))]
        started_us = draw.choice((0, self.now_us, self.now_us // 2))
        return JobRunning(self.now_us, job, gpus, started_us, draw.choice((None, 0, 7.5)), draw.choice(("", "q")))

    def _odd(self, job: Any) -> Any:
        draw = self._draw
        return replace(
            job,
            iterations=draw.choice((1, job.iterations, 2**53 - 1)),
            weight=draw.choice((1, 5, 2**53 - 1)),
            gpus=draw.choice((job.gpus, 1, 2, 3, 7, 12, 13)),
            min_gpus=draw.choice((0, job.min_gpus, 1)),
            max_gpus=draw.choice((0, job.max_gpus, 16)),
            batch_size=draw.choice((job.batch_size, 1, None)),
            foreground=draw.random() < 0.3,
        )

    def _added(self, name: str) -> ServerAdded:
        draw, like = self._draw, self._cluster.servers[0]
        kind, memory = draw.choice((like.gpu_type, like.gpu_type, "other")), draw.choice((1, *(like.gpu_memory,) * 2))
        server = replace(like, name=name, gpu_type=kind, gpus=draw.choice((1, like.gpus)), gpu_memory=memory)
        links = (Link(f"to-{name}", (name, draw.choice(("switch", "s0"))), draw.choice((1, 10**9)), 10),)
        return ServerAdded(self.now_us, server, draw.choice((links, links, ())))


def good_job_starts(live: LiveScheduler, hostility: Hostility, text: str) -> bool:
    """Whether a job starts that can run on an idle server, once all others have gone and everything is back."""
    now = hostility.step_us()
    for one in live.state()["jobs"]:
        live.handle(JobCancelled(now, one["trace"]["name"]))
    for queue in ("", "q"):
        live.handle(QuotaChanged(now, queue, None))
    for server in live.cluster.servers:
        live.handle(ServerBack(now, server.name))
    for gpu in live.cluster.gpus.names:
        live.handle(GpuBack(now, gpu))
    for link in live.cluster.links:
        live.handle(LinkUp(now, link.name))
    live.handle(JobSubmitted(now, CASES[text][0]("good", random.Random(2))))
    return any(start.to.job == "good" for _ in range(2) for start in live.step(now + 60 * 10**6).starts)
