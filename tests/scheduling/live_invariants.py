"""Events of all kinds as a program that runs a cluster would tell them, with what must hold after each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    ClusterEvent,
    GpuBack,
    GpuFailed,
    JobCancelled,
    JobFinished,
    JobFrozen,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRequeued,
    JobRunning,
    JobStop,
    JobSubmitted,
    JobThawed,
    LinkDown,
    LinkUp,
    LiveScheduler,
    PlanChange,
    PolicyBack,
    PriorityChanged,
    QuotaChanged,
    ServerAdded,
    ServerBack,
    ServerCordoned,
    ServerDrained,
    ServerLost,
    StartFailed,
)
from tests.scheduling.live_cases import CASES, SECOND, MadeJob, in_json, made

MOVES_PER_HOUR = 6
_MOST_JOBS, _MOST_SERVERS = 14, 6


class RunCluster:
    """A cluster in truth, by what was told to it and of it: who runs where, who is held, and what is out of use."""

    def __init__(self, text: str, seed: int) -> None:
        self.make: MadeJob = CASES[text][0]
        self.cluster = CASES[text][1]
        self.draw = random.Random(seed)
        self.jobs: dict[str, TraceJob] = {}
        self.before: dict[str, set[str]] = {}
        self.adopted: set[str] = set()
        self.gpus: dict[str, tuple[str, ...]] = {}
        self.held: set[str] = set()
        self.frozen: set[str] = set()
        self.moved_us: list[int] = []
        self.closed: set[str] = set()
        self.cordoned: set[str] = set()
        self.failed: set[str] = set()
        self.servers = [server.name for server in self.cluster.servers]
        self.links = [link.name for link in self.cluster.links]
        self.count = self.now_us = 0

    # What happens ---------------------------------------------------------------------------------------------

    def event(self) -> ClusterEvent:
        """The next event, which a scheduler may refuse where a job cannot run."""
        draw = self.draw
        self.now_us += draw.randrange(60 * SECOND)
        if len(self.jobs) < _MOST_JOBS and (draw.random() < 0.35 or not self.jobs):
            self.count += 1
            job = replace(self.make(f"j{self.count}", draw), preemptible=draw.choice((None, None, False)))
            if draw.random() < 0.4:
                return self._running(job)
            if draw.random() < 0.4:
                before = draw.choice((None, tuple(draw.sample(["x", "a", *self.jobs], 2))))
                begin_us = self.now_us + draw.choice((0, 100 * SECOND))
                job = replace(job, submit_us=begin_us, after=before, array="a", array_limit=draw.choice((None, 3)))
            return JobSubmitted(self.now_us, job, draw.choice(("", "q")))
        return draw.choice((self._of_job, self._of_job, self._of_parts))()

    def _of_job(self) -> ClusterEvent:
        now, draw, name = self.now_us, self.draw, self.draw.choice(list(self.jobs))
        choices: list[Callable[[], ClusterEvent]] = [
            lambda: JobProgressed(now, name, draw.randrange(4000)),
            lambda: JobFinished(now, name),
            lambda: JobCancelled(now, name),
            lambda: self._running(self.jobs[name]),
            lambda: StartFailed(now, name, "", self.gpus.get(name, ())[: draw.randrange(2)]),
            lambda: JobRequeued(now, name),
            lambda: JobHeld(now, name),
            lambda: JobReleased(now, name),
            lambda: JobFrozen(now, name),
            lambda: JobThawed(now, name),
            lambda: PriorityChanged(now, name, draw.randrange(1, 9)),
        ]
        return draw.choice(choices)()

    def _of_parts(self) -> ClusterEvent:
        now, draw = self.now_us, self.draw
        server, link, gpu = draw.choice(self.servers), draw.choice(self.links), draw.choice(self._names())
        if len(self.servers) < _MOST_SERVERS and draw.random() < 0.1:
            new = replace(self.cluster.servers[0], name=f"new{len(self.servers)}")
            return ServerAdded(now, new, (Link(f"to-{new.name}", (new.name, "switch"), 10**9, 10),))
        choices: list[ClusterEvent] = [
            ServerCordoned(now, server),
            ServerDrained(now, server),
            ServerLost(now, server),
            *(ServerBack(now, one) for one in (server, draw.choice(self.servers))),
            GpuFailed(now, gpu),
            *(GpuBack(now, one) for one in (gpu, *self.failed)),
            LinkDown(now, link),
            LinkUp(now, link),
            LinkUp(now, draw.choice(self.links)),
            QuotaChanged(now, "q", draw.choice((None, 2, 8))),
            PolicyBack(now),
        ]
        return draw.choice(choices)

    def _running(self, job: TraceJob) -> JobRunning:
        """A job on GPUs that nobody holds in truth, as far as there are so many."""
        taken = {gpu for name, gpus in self.gpus.items() if name != job.name for gpu in gpus}
        free = [gpu for gpu in self._names() if gpu not in taken]
        first = self.draw.randrange(max(1, len(free) - job.gpus + 1))
        started_us = self.draw.randrange(self.now_us + 1)
        return JobRunning(self.now_us, job, tuple(free[first : first + job.gpus]), started_us, 3.0, "q")

    def _names(self) -> list[str]:
        width = self.cluster.servers[0].gpus
        return [f"{server}/{k}" for server in self.servers for k in range(width)]

    # What has happened ----------------------------------------------------------------------------------------

    def hear(self, event: ClusterEvent) -> None:
        """Take note of an event that the scheduler took in."""
        match event:
            case JobSubmitted():
                named = [name for name, job in self.jobs.items() if {name, job.array} & {*(event.job.after or ())}]
                self.before[event.job.name] = set(named)
                self.jobs[event.job.name] = event.job
            case JobRunning():
                self.jobs.setdefault(event.job.name, event.job)
                self.before[event.job.name] = set()
                self.adopted.add(event.job.name)
                self.gpus[event.job.name] = tuple(sorted(event.gpus, key=self._names().index))
            case JobFinished():
                del self.jobs[event.job]
                self.gpus.pop(event.job, None)
                self.held.discard(event.job)
                self.frozen.discard(event.job)
            case JobCancelled():
                del self.jobs[event.job]
                self.held.discard(event.job)
                self.frozen.discard(event.job)
            case StartFailed() | JobRequeued():
                self.gpus.pop(event.job, None)
                self.failed.update(getattr(event, "gpus", ()))
            case JobHeld():
                self.held.add(event.job)
            case JobReleased():
                self.held.discard(event.job)
            case JobFrozen():
                self.frozen.add(event.job)
            case JobThawed():
                self.frozen.discard(event.job)
            case ServerAdded():
                self.servers.append(event.server.name)
                self.links += [link.name for link in event.links]
            case _:
                self._hear_of_parts(event)

    def _hear_of_parts(self, event: ClusterEvent) -> None:
        match event:
            case ServerCordoned():
                self.cordoned.add(event.server)
            case ServerDrained() | ServerLost():
                self.closed.add(event.server)
            case ServerBack():
                self.closed.discard(event.server)
                self.cordoned.discard(event.server)
            case GpuFailed():
                self.failed.add(event.gpu)
            case GpuBack():
                self.failed.discard(event.gpu)

    def carry_out(self, change: PlanChange) -> None:
        """Do what a step tells, and assert that it can be done."""
        assert not change.failure or "has to stay" in change.failure, change.failure
        assert not change.late
        self._require_limits(change)
        for stop in change.stops:
            assert self.gpus.pop(stop.job) == stop.gpus and stop.reason
        for move in change.moves:
            assert self.gpus[move.to.job] == move.before.gpus and move.reason
            if move.restarts:
                self._require_open(move.to.gpus)
            self.gpus[move.to.job] = move.to.gpus
        for start in change.starts:
            assert start.to.job not in self.gpus and start.to.job not in self.held and start.reason
            assert not self.before[start.to.job] & self.jobs.keys()
            assert start.to.job in self.adopted or self.jobs[start.to.job].submit_us <= change.time_us
            self._require_open(start.to.gpus)
            self.gpus[start.to.job] = start.to.gpus
        holders: dict[str, set[str]] = {}
        for job, gpus in self.gpus.items():
            assert not {gpu.partition("/")[0] for gpu in gpus} & self.closed and not self.failed.intersection(gpus)
            for gpu in gpus:
                holders.setdefault(gpu, set()).add(job)
        pools = {frozenset(jobs) for jobs in holders.values()}
        assert sum(map(len, pools)) == len(self.gpus), "jobs share all their GPUs or none"
        assert self.gpus.keys() <= self.jobs.keys()
        running = [self.jobs[name] for name in self.gpus.keys() - self.adopted]
        assert sum(bool(job.array_limit) for job in running) <= 3

    def _require_limits(self, change: PlanChange) -> None:
        """Assert that the policy stops and moves only jobs that need not stay, and not too many in an hour."""
        gone = [*change.stops, *(move for move in change.moves if move.restarts)]
        names = [one.job if isinstance(one, JobStop) else one.to.job for one in gone if one.reason.startswith("policy")]
        fixed = self.frozen | {name for name, job in self.jobs.items() if job.preemptible is False}
        assert not fixed.intersection(names)
        self.moved_us += [change.time_us] * len(names)
        assert sum(time_us > change.time_us - 3600 * SECOND for time_us in self.moved_us) <= MOVES_PER_HOUR

    def _require_open(self, gpus: tuple[str, ...]) -> None:
        assert not {gpu.partition("/")[0] for gpu in gpus} & self.cordoned


def hold_events(text: str, seed: int, count: int) -> tuple[int, int]:
    """Tell a scheduler so many events, and assert all that must hold; how many it took in, and how many steps.

    It is put aside and taken up at random moments, and another one is given its journal.
    """
    limits = {"moves_per_hour": MOVES_PER_HOUR, "fall_back": 3}
    truth, journal, again = RunCluster(text, seed), list[Any](), made(text, **limits)

    def note(entry: Any) -> None:
        journal.append(in_json(entry))

    live, taken, steps = made(text, journal=note, **limits), 0, 0
    for _ in range(count):
        event = truth.event()
        try:
            live.handle(event)
        except UsageError:
            assert isinstance(event, JobSubmitted | JobRunning)  # all others are such as can be
            continue
        truth.hear(event)
        taken += 1
        if truth.draw.random() < 0.3:
            truth.carry_out(live.step(truth.now_us))
            steps += 1
            assert truth.gpus == {one["job"]: tuple(one["gpus"]) for one in live.state()["told"]}
        if truth.draw.random() < 0.02:
            state, live = in_json(live.state()), made(text, journal=note, **limits)
            live.restore(state)
            assert in_json(live.state()) == state
            _replay(again, journal)
            assert in_json(again.state()) == state
    _replay(again, journal)
    assert in_json(again.state()) == in_json(live.state())
    return taken, steps


def _replay(live: LiveScheduler, journal: list[Any]) -> None:
    for entry in journal:
        live.replay(entry)
    journal.clear()
