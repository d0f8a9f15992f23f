"""Schedules of a batch, and when its jobs end: speeds change with who runs beside whom (equation 9)."""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.formulations.sjf_bco.batch import Batch, Spread, sharing, speed
from jigsaw_opt.problem.costs import ceil_div


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """One ``y^k``: where and when every job runs.

    `starts`: first slot of each job, ``a_j``, counted from 0.
    """

    starts: tuple[int, ...]
    spreads: tuple[Spread, ...]


class BatchProgress:
    """Jobs that run, from slot to slot."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.clock = 0
        self.running: dict[int, Spread] = {}
        self.ends: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._speeds: dict[tuple[int, int, int], int] = {}

    def copy(self) -> BatchProgress:
        """Return the same state, which goes its own way from here."""
        twin = BatchProgress(self.batch)
        # Speeds follow from the batch alone, so copies share those that are known.
        twin.clock, twin._speeds = self.clock, self._speeds
        twin.running, twin.ends, twin._left = dict(self.running), dict(self.ends), dict(self._left)
        return twin

    def start(self, job: int, spread: Spread) -> None:
        """Let a job run from this slot on."""
        self.running[job] = spread
        self._left[job] = self.batch.jobs[job].iterations

    def to_next_end(self, until: int) -> bool:
        """Go on until a job ends, but not beyond the beginning of slot `until`, and return whether one did."""
        speeds = self._current_speeds()
        # Speeds change only when a job ends or starts, so all slots up to then are passed at once.
        first = min((ceil_div(self._left[job], rate) for job, rate in speeds.items() if rate), default=None)
        ends = first is not None and self.clock + first <= until
        self._go_on(speeds, first if ends and first is not None else until - self.clock)
        return ends

    def least_end(self, job: int) -> int | None:
        """Return a lower bound on the end of this running job, in slots; None if it never moves on."""
        rate = self._speed(job, sum(count > 0 for count in self.running[job]), 1)
        return self.clock + ceil_div(self._left[job], rate) if rate else None

    def _go_on(self, speeds: dict[int, int], slots: int) -> None:
        self.clock += slots
        for job, rate in speeds.items():
            self._left[job] -= rate * slots
            if self._left[job] <= 0:
                self.ends[job] = self.clock
                del self.running[job], self._left[job]

    def _current_speeds(self) -> dict[int, int]:
        shared = sharing(list(self.running.values()))
        return {
            job: self._speed(job, sum(count > 0 for count in spread), p)
            for (job, spread), p in zip(self.running.items(), shared, strict=True)
        }

    def _speed(self, job: int, servers: int, shared: int) -> int:
        key = (job, servers, shared)
        if key not in self._speeds:
            self._speeds[key] = speed(self.batch, self.batch.jobs[job], servers, shared)
        return self._speeds[key]


def completion(batch: Batch, schedule: BatchSchedule) -> tuple[int, ...] | None:
    """Return the end of every job, ``T_j``, or None where one does not end within the horizon.

    A job that starts in slot ``a`` and needs ``n`` slots ends at ``a + n``, the first slot without it.

    Parameters
    ----------
    batch
        Jobs and servers.
    schedule
        Start and servers of every job.

    Returns
    -------
    tuple[int, ...] | None
        By job, in slots.
    """
    progress = BatchProgress(batch)
    for job in sorted(range(len(batch.jobs)), key=lambda job: schedule.starts[job]):
        while progress.clock < schedule.starts[job]:
            progress.to_next_end(schedule.starts[job])
        progress.start(job, schedule.spreads[job])
    while progress.running:
        if not progress.to_next_end(batch.horizon):
            return None
    return tuple(progress.ends[job] for job in range(len(batch.jobs)))
