"""Reservations of whole servers for jobs that wait, as in Slurm: "the backfill scheduler reserves whole nodes for jobs,
not partial nodes" (slurm.conf, 22.05). Described in docs/simulation.md.

All are made anew at each decision. A job that starts takes single GPUs, also of servers that were reserved for a job
behind it, so a reservation may become later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby
from math import inf
from operator import or_
from typing import Generic, TypeVar

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.placement.placing import FreeGpus
from jigsaw_opt.scheduling.policy import ClusterSetting

Value = TypeVar("Value")


class StepFunction(Generic[Value]):
    """Values over time: `values[k]` from `times[k]` to `times[k + 1]`, the last for ever."""

    def __init__(self, now_us: int, value: Value) -> None:
        self.times, self.values = [now_us], [value]

    def at(self, time_us: int) -> int:
        """Return the number of a time, which is added if need be."""
        k = bisect_left(self.times, time_us)
        if k == len(self.times) or self.times[k] != time_us:
            self.times.insert(k, time_us)
            self.values.insert(k, self.values[k - 1])
        return k


def freed(free: FreeGpus, ends: Iterable[tuple[int, tuple[int, ...]]]) -> Iterator[tuple[int, FreeGpus]]:
    """Yield each time at which jobs that run are expected to end, with what is free then: one object that changes."""
    free = free.copy()
    for end_us, those in groupby(sorted(ends), key=lambda one: one[0]):
        for _, gpus in those:
            free.add(gpus)
        yield end_us, free


class ServerReservations(StepFunction[tuple[FreeGpus, int]]):
    """The GPUs that running jobs leave free from now on, and the servers that are reserved, as a bit set.

    `ends`: when jobs that run are expected to end, after now, and their GPUs.
    """

    def __init__(
        self, setting: ClusterSetting, now_us: int, free: FreeGpus, ends: Iterable[tuple[int, tuple[int, ...]]]
    ) -> None:
        super().__init__(now_us, (free.copy(), 0))
        self._server_of = setting.server_of
        self._counts: dict[tuple[FreeGpus, int], int] = {}
        self._choice = setting.pool_choice
        self._found_for: defaultdict[object, list[tuple[int, int]]] = defaultdict(list)
        for end_us, later in freed(free, ends):
            self.values[self.at(end_us)] = later.copy(), 0

    def may_start(self, gpus: int, length_us: int) -> bool:
        """Return whether so many GPUs are free now that no reservation needs for so long."""
        return self._count(0, self._reserved_within(0, length_us)) >= gpus

    def start(self, end_us: int, gpus: tuple[int, ...]) -> None:
        """Let a job run from now on: its GPUs are not free until it is expected to end."""
        left: dict[FreeGpus, FreeGpus] = {}
        for k in range(self.at(end_us)):
            free, reserved = self.values[k]
            if free not in left:
                left[free] = free.copy()
                left[free].remove(gpus)
            self.values[k] = left[free], reserved

    def reserve(self, start_us: int, end_us: int, gpus: tuple[int, ...]) -> None:
        """Reserve the whole servers of some GPUs between two times."""
        servers = 0
        for gpu in gpus:
            servers |= 1 << self._server_of[gpu]
        for k in range(self.at(start_us), self.at(end_us)):
            free, reserved = self.values[k]
            self.values[k] = free, reserved | servers

    def earliest(self, job: TraceJob, length_us: int, placement: str) -> tuple[int, tuple[int, ...]] | None:
        """Return the first time from which a job finds enough GPUs on unreserved servers, and these GPUs.

        None stands for never: too few GPUs are up.
        """
        # Reservations are only added and free GPUs only taken, so no job finds a time before the one that a job like it
        # found which was as short or shorter.
        found_for = self._found_for[job.gpus, self._choice.of(job)]
        at = bisect_right(found_for, (length_us, inf))
        first = max((start_us for _, start_us in found_for[:at]), default=self.times[0])
        for k in range(bisect_left(self.times, first), len(self.times)):
            if self._count(k, self.values[k][1]) < job.gpus:
                continue
            reserved = self._reserved_within(k, length_us)
            if self._count(k, reserved) >= job.gpus:
                gpus = self.values[k][0].without_servers(_members(reserved)).place(job, placement)
                if gpus is not None:
                    insort(found_for, (length_us, self.times[k]))
                    return self.times[k], gpus
        return None

    def _reserved_within(self, k: int, length_us: int) -> int:
        """Return the servers that are reserved at any time in so long from the time of number k on, as a bit set."""
        within = self.values[k : bisect_left(self.times, self.times[k] + length_us)]
        return reduce(or_, (reserved for _, reserved in within), 0)

    def _count(self, k: int, reserved: int) -> int:
        """Return how many GPUs are free at the time of number k on servers that are not in a bit set."""
        free, _ = self.values[k]
        key = free, reserved
        if key not in self._counts:
            self._counts[key] = free.count - sum(map(free.count_on, _members(reserved)))
        return self._counts[key]


def _members(bits: int) -> set[int]:
    """Return the numbers in a bit set."""
    return {k for k in range(bits.bit_length()) if bits >> k & 1}
