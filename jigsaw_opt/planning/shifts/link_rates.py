"""Jobs that repeat their iterations and share links by rate, from event to event.

The blocks of an iteration start together; each bucket is sent once it is ready and the one before has been sent; the
next iteration follows at once. While transfers run, a model divides the links among them. A transfer is so much time
at its rate alone, latency included. Times are floating point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from jigsaw_opt.planning.shifts.jobs import OwnIteration, RepeatedJob
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.network.contention import FairSharing

_SMALL = 1e-6
"""Microseconds that count as none: what rounding leaves of a transfer."""


@dataclass(frozen=True, slots=True)
class SharedRun:
    """The measurements of a simulation of shared links.

    `iteration_us`: for each job, mean time of an iteration after those that are left out at the beginning.
    `iterations`: for each job, iterations that it finished. `sent_us`: for each job, what it has sent in all, in
    microseconds at its rate alone.
    """

    iteration_us: tuple[float, ...]
    iterations: tuple[int, ...]
    sent_us: tuple[float, ...]
    end_us: float


@dataclass(slots=True)
class _Progress:
    """The progress of a job in its iterations."""

    job: RepeatedJob
    start: float
    bucket: int = 0
    left: float = 0.0
    until: float = 0.0
    finished: int = 0
    sent: float = 0.0
    ends: list[float] = field(default_factory=list)

    @property
    def iteration(self) -> OwnIteration:
        return self.job.iterations[self.finished % len(self.job.iterations)]

    def go_on(self, now: float) -> bool:
        """Go on to the next transfer, and say whether there is one now; else `until` says when to ask again."""
        while True:
            own = self.iteration
            if self.bucket == len(own.exchange_us):
                self.until = self.start + own.compute_us
                if now < self.until:
                    return False
                self.finished, self.bucket = self.finished + 1, 0
                self.ends.append(now)
                self.start = now
                continue
            self.until = self.start + own.ready_us[self.bucket]
            if now < self.until:
                return False
            self.left = float(own.exchange_us[self.bucket])
            if self.left > 0:
                return True
            self.bucket += 1

    def send(self, amount: float) -> bool:
        """Send some of the transfer under way, and say whether it is finished."""
        self.sent += amount
        self.left -= amount
        if self.left > _SMALL:
            return False
        self.bucket += 1
        return True


def simulate_shared(
    jobs: Sequence[RepeatedJob],
    bandwidths: Sequence[int],
    shifts_us: Sequence[float],
    *,
    iterations: int = 200,
    warm_up: int = 20,
) -> SharedRun:
    """Run the jobs until each has finished so many iterations; where the time is over before, at least one.

    Mean time of an iteration of each job, in microseconds, and what each has sent.

    `bandwidths`: bytes per second of every link of the cluster. `iterations, warm_up`: iterations of each job after
    those that are not measured, and how many these are; 0 starts at the shift.
    """
    runs = [_Progress(job, float(shift), until=float(shift)) for job, shift in zip(jobs, shifts_us, strict=True)]
    waiting, sending, now = list(range(len(runs))), list[int](), 0.0
    speeds = _Speeds(jobs, bandwidths)
    goal = iterations + warm_up
    while any(run.finished < goal for run in runs):
        if goal > 1 and clock.left() <= 0:
            goal = 1
            continue
        for j in [j for j in waiting if runs[j].until <= now]:
            if runs[j].go_on(now):
                waiting.remove(j)
                sending.append(j)
        rates = speeds.of(tuple(sending))
        ends = [now + runs[j].left / rate if rate else math.inf for j, rate in zip(sending, rates, strict=True)]
        following = min([*ends, *(runs[j].until for j in waiting)])
        done = [
            j
            for j, rate, end in zip(sending, rates, ends, strict=True)
            if runs[j].send(runs[j].left if end == following else rate * (following - now))
        ]
        now = following
        for j in done:
            sending.remove(j)
            waiting.append(j)
            runs[j].until = now
    return SharedRun(
        tuple(_mean(run, float(shift), warm_up) for run, shift in zip(runs, shifts_us, strict=True)),
        tuple(run.finished for run in runs),
        tuple(run.sent for run in runs),
        now,
    )


class _Speeds:
    """Rates of the transfers under way over their rates alone, kept once worked out."""

    def __init__(self, jobs: Sequence[RepeatedJob], bandwidths: Sequence[int]) -> None:
        self._channels, self._bandwidths = [job.channel for job in jobs], bandwidths
        self._known: dict[tuple[int, ...], tuple[float, ...]] = {}

    def of(self, sending: tuple[int, ...]) -> tuple[float, ...]:
        if sending not in self._known:
            channels = [self._channels[j] for j in sending]
            rates = FairSharing().rates(channels, self._bandwidths)
            self._known[sending] = tuple(float(r / c.rate) for r, c in zip(rates, channels, strict=True))
        return self._known[sending]


def _mean(run: _Progress, shift: float, warm_up: int) -> float:
    ends = [shift, *run.ends]
    warm_up = warm_up if len(ends) > warm_up + 1 else 0  # the time was over before
    return (ends[-1] - ends[warm_up]) / (len(ends) - 1 - warm_up)
