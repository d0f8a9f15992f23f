"""Jobs of a cluster that runs: what they have reported, and what of it the policy has not been told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jigsaw_opt.scheduling.plain import TEXT, TRUTH, Kept, NumberLimits, Shape, fields, listed, optional, whole
from jigsaw_opt.scheduling.policy import JobState


@dataclass(slots=True)
class LiveJob(Kept):
    """A job and what it has reported.

    `active`: the job as policies see it; its work done is what was reported, and what the measured speed adds since.
    `reported`: units of work of its last report. `reported_us`: when that was, if it holds the GPUs of then still.
    `pace`: units a microsecond between two reports from the same GPUs; 0 where there are none. `queue`: the queue that
    it was submitted to. `held`: whether the policy does not know of it: it waits for room in the quota of its queue or
    in its array, or for other jobs, is on hold, or is put aside, or it runs on a server that is cordoned. `aside`: why
    it is put aside: what the policy failed with; empty of others. `on_hold`: whether it is not to be started until it
    is released. `waits_for`: numbers of the jobs that were to end before it starts when it was submitted. `frozen`:
    whether the policy may neither stop nor move it while it runs. `stays_until_us`: until when it is kept from the
    policy, which would have stopped or moved it though it was to stay. `failed_starts`: how often in a row its start
    has failed without a GPU to blame.
    """

    active: JobState
    reported: int = 0
    reported_us: int | None = None
    pace: int = 0
    queue: str = ""
    held: bool = False
    aside: str = ""
    on_hold: bool = False
    waits_for: list[int] = field(default_factory=list)
    frozen: bool = False
    stays_until_us: int = 0
    failed_starts: int = 0

    @property
    def stays(self) -> bool:
        """Whether no policy may stop or move it while it runs."""
        return self.frozen or self.active.job.preemptible is False

    def copy(self) -> LiveJob:
        """Return a job that changes apart from this one."""
        return replace(self, active=self.active.copy())

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        own = {"reported": whole(), "reported_us": optional(limits.time), "pace": whole()}
        kept = {"frozen": TRUTH, "stays_until_us": whole(), "failed_starts": whole()}
        return fields(**own, queue=TEXT, held=TRUTH, aside=TEXT, on_hold=TRUTH, waits_for=listed(limits.job), **kept)

    def take_up(self) -> None:
        """Have the policy asked about it again: it may not fail again."""
        self.aside, self.failed_starts = "", 0

    def report(self, now_us: int, done: int) -> None:
        """Note a report of progress, and measure the speed since the one before."""
        if self.reported_us is not None and now_us > self.reported_us:
            self.pace = max(0, done - self.reported) // (now_us - self.reported_us)
        self.reported = self.active.done = done
        self.failed_starts = 0
        self.reported_us = None if self.active.share is None else now_us

    def estimate(self, now_us: int) -> None:
        """Count what the measured speed has added by now; a job that has not ended has something left."""
        if self.reported_us is not None:
            done = self.reported + self.pace * (now_us - self.reported_us)
            self.active.done = min(self.active.work - 1, done)

    def leave(self) -> None:
        """Note that it no longer runs where it did."""
        self.active.share, self.stays_until_us = None, 0
        self.forget_speed()

    def forget_speed(self) -> None:
        """Forget the measured speed: it no longer holds."""
        self.reported_us, self.pace = None, 0


@dataclass(slots=True)
class News(Kept):
    """News for the policy: jobs submitted, ended, and stopped by something else than the policy.

    `unfinished`: those of the ended that have not ended by themselves, or that are only kept from the policy.
    """

    arrived: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)

    @staticmethod
    def shape(limits: NumberLimits) -> Shape:
        """Return the schema of what `plain` gives."""
        always = ("arrived", "ended", "stopped")
        return {**fields(**dict.fromkeys((*always, "unfinished"), listed(limits.job))), "required": always}

    def stop(self, index: int) -> None:
        """Note that a job lost its GPUs or has others; one that the policy is to be told of is as it will see it."""
        if index not in self.stopped and index not in self.arrived:
            self.stopped.append(index)

    def forget(self, index: int) -> None:
        """Note that the policy need not be told that a job lost its GPUs."""
        if index in self.stopped:
            self.stopped.remove(index)

    def arrive(self, index: int) -> None:
        """Note a job that the policy is to know of, also again: one that it is still to be told is gone is there."""
        if index in self.ended:
            self.keep_end(index)
            self.stop(index)
        else:
            self.arrived.append(index)

    def adopted(self, jobs: Mapping[int, LiveJob]) -> set[int]:
        """Return the jobs among them that run: something else than the policy has started them."""
        return {index for index in (*self.arrived, *self.stopped) if jobs[index].active.share is not None}

    def end(self, index: int, finished: bool = False) -> None:
        """Note that a job is gone; of one that the policy does not know it is not told."""
        self.forget(index)
        if index in self.arrived:
            self.arrived.remove(index)
        else:
            self.ended.append(index)
            self.unfinished += [] if finished else [index]

    def keep_end(self, index: int) -> None:
        """Note that the policy need not be told that a job is gone."""
        self.ended.remove(index)
        if index in self.unfinished:
            self.unfinished.remove(index)

    def after(self, earlier: News) -> News:
        """Return all that is new if the policy has forgotten what it was told `earlier`."""
        gone = set(self.ended)
        arrived = [index for index in earlier.arrived if index not in gone]
        ended = [index for index in self.ended if index not in earlier.arrived]
        told = gone.union(arrived)
        stopped = dict.fromkeys(index for index in (*earlier.stopped, *self.stopped) if index not in told)
        unfinished = [index for index in (*earlier.unfinished, *self.unfinished) if index not in earlier.arrived]
        found = News(arrived, [*earlier.ended, *ended], list(stopped), unfinished)
        for index in self.arrived:
            found.arrive(index)
        return found
