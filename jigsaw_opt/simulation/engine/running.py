"""What runs: the shares, the jobs in them, their speeds, and their exact progress between events."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.link_routes import LinkRoutes
from jigsaw_opt.scheduling.performance import Contention, Speed
from jigsaw_opt.scheduling.plain import NumberLimits, Plain, Shape, fields
from jigsaw_opt.scheduling.policy import JobState
from jigsaw_opt.scheduling.policy_at_work import require
from jigsaw_opt.simulation.engine.setting import Setting


def check_progress(active: JobState, before: int, productive_us: int, speed: Speed, now_us: int) -> None:
    """Check that the work done is what was done before, and that the job did not go on beyond its end."""
    when, name = f"at {now_us} us", active.job.name
    require(active.done >= before, when, f"job {name!r} lost progress")
    require(active.done <= before, when, f"job {name!r} has progress that it has not made")
    beyond = active.done + speed.rate * productive_us - active.work
    require(beyond < speed.rate, when, f"job {name!r} did more work than it has")


@dataclass(slots=True)
class Running:
    """A job that holds GPUs.

    `active`: the job; its figures are right at `settled_us` and brought up to date by `settle`. `done`: its work done
    at `settled_us`, by which it is noticed if others change that of the job. `start_us`: since when it holds these
    GPUs. `ready_us`: when its restart is over and it makes progress. `settled_us`: up to when its progress is counted.
    `speed`: how fast it runs once it is ready; None before the first speed is known. `timer`: number of its timer; all
    others are void. `checkpoint_us`: time between two checkpoints, the first so long after it is ready; None where
    nothing fails. `saved, saved_gpu_us`: work done, and service of the job, at its last checkpoint or at its start.
    """

    active: JobState
    done: int
    start_us: int
    ready_us: int
    settled_us: int
    speed: Speed | None = None
    timer: int = 0
    checkpoint_us: int | None = None
    saved: int = 0
    saved_gpu_us: int = 0

    def settle(self, now_us: int) -> None:
        """Count the progress and the service up to `now_us`."""
        active, share = self.active, self.active.share
        assert share is not None
        held = now_us - self.settled_us
        # Jobs that share GPUs count for equal parts of them.
        service = held * len(share.gpus) // len(share.jobs)
        if self.checkpoint_us is not None:
            self._save(share, self.checkpoint_us, now_us)
        if self.speed is not None:
            productive = max(0, now_us - max(self.settled_us, self.ready_us))
            check_progress(active, self.done, productive, self.speed, now_us)
            active.done = self.done = min(active.work, active.done + self.speed.rate * productive)
        active.run_us += held
        active.gpu_us += service
        self.settled_us = now_us

    def _save(self, share: Share, every_us: int, now_us: int) -> None:
        """Note the last checkpoint up to `now_us`, if there was one since the job was settled."""
        last_us = now_us - (now_us - self.ready_us) % every_us
        if self.speed is not None and last_us > max(self.settled_us, self.ready_us):
            productive = last_us - max(self.settled_us, self.ready_us)
            self.saved = min(self.active.work, self.done + self.speed.rate * productive)
            self.saved_gpu_us = self.active.gpu_us + (last_us - self.settled_us) * len(share.gpus) // len(share.jobs)

    def next_us(self) -> int:
        """Return when it ends or its speed changes, whichever is first, if nothing else happens."""
        assert self.speed is not None
        until = self.speed.until
        goal = self.active.work if until is None else min(until, self.active.work)
        left = max(0, goal - self.active.done)
        # Rounded up to a whole microsecond: by then all of the work is done.
        return max(self.settled_us, self.ready_us) - (-left // self.speed.rate)

    def plain(self) -> Plain:
        """Return the job as it stands in a snapshot, without what follows from its share and its figures."""
        return {"job": self.active.index, "start_us": self.start_us, "settled_us": self.settled_us}

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        return fields(job=limits.job, start_us=limits.time, settled_us=limits.time)

    @classmethod
    def begun(cls, active: JobState, setting: Setting, done: int, start_us: int, settled_us: int) -> Running:
        """Return a job that holds GPUs; its speed is still to be set."""
        ready_us = start_us + setting.restart_of(active.job)
        every_us = None if setting.failures is None else setting.failures.checkpoint_us
        return cls(
            active, done, start_us, ready_us, settled_us, checkpoint_us=every_us, saved=done, saved_gpu_us=active.gpu_us
        )


class RunningShares:
    """The shares that run, each with how much longer its exchanges take because of the others.

    `shares`: the factor of each share, which links that are up join; who changes them asks for new speeds. `running`:
    the jobs of the shares by number. `partial`: jobs that have run below full depth, by number, and whether nobody knew
    what their iterations are worth.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._timers: list[tuple[int, int, int]] = []
        self._count = 0
        detours = None if setting.failures is None else LinkRoutes(setting.cluster)
        self._contention: Contention | None = detours if setting.contention is None else setting.contention
        self.shares: dict[Share, float] = {}
        self.running: dict[int, Running] = {}
        self.partial: dict[int, bool] = {}
        self.dead: frozenset[int] = frozenset()

    def next_us(self) -> int | None:
        """Return when the next job ends or changes its speed; None where nothing runs."""
        while self._timers:
            time_us, index, timer = self._timers[0]
            if index in self.running and self.running[index].timer == timer:
                return time_us
            heapq.heappop(self._timers)  # outdated ones stay until they come up
        return None

    def due(self, now_us: int) -> Iterator[int]:
        """Yield numbers of the jobs that end or change their speed by now, in order."""
        while (time_us := self.next_us()) is not None and time_us <= now_us:
            yield heapq.heappop(self._timers)[1]

    def begin(self, shares: Sequence[Share], now_us: int) -> None:
        """Take over shares whose jobs run already, from where each is settled."""
        self.shares = dict(zip(shares, self._factors(shares), strict=True))
        for share in shares:
            self._time(share, now_us)

    def set_speeds(self, now_us: int, changed: Iterable[Share]) -> None:
        """Compute the speeds of the shares that changed, and of those whose contention changed with them."""
        stale = dict.fromkeys(changed)
        if self._contention is not None:
            shares = list(self.shares)
            for share, factor in zip(shares, self._factors(shares), strict=True):
                if factor != self.shares[share]:
                    self.shares[share] = factor
                    stale[share] = None
        for share in stale:
            for index in share.jobs:
                self.running[index].settle(now_us)
            self._time(share, now_us)

    def _factors(self, shares: Sequence[Share]) -> Sequence[float]:
        """Return how much longer the exchanges of each share take because of the others, or of links that are down."""
        if self._contention is None:
            return [1.0] * len(shares)
        return self._contention.factors([share.gpus for share in shares], self.dead)

    def _time(self, share: Share, now_us: int) -> None:
        """Work out the speeds of the jobs of a share from where they are settled."""
        running = [self.running[index] for index in share.jobs]
        members = [one.active.job for one in running]
        speeds = self._setting.performance.speeds(share, members, [one.active.done for one in running])
        for one, speed in zip(running, speeds, strict=True):
            when, name = f"at {now_us} us", one.active.job.name
            require(speed.rate > 0, when, f"job {name!r} has no speed")
            require(speed.until is None or speed.until > one.active.done, when, f"the speed of job {name!r} is over")
            one.speed = speed.stretched(self.shares[share])
            if share.depth(one.active.index) != FullDepth():
                self.partial[one.active.index] = self.partial.get(one.active.index, False) or speed.is_raw
            self._count += 1
            one.timer = self._count
            heapq.heappush(self._timers, (one.next_us(), one.active.index, one.timer))
