"""One clock for all processes, also on several hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from time import perf_counter_ns, sleep

import torch
import torch.distributed as dist

_ROUNDS = 32
_LEAD_US = 3000
"""Time for the agreed moment to reach every process before it comes."""


class ReplayClock:
    """Microseconds by the clock of the first process.

    Every process of `control` makes it at the same time. The difference of the clocks is that of the round trip
    which took least, if it is larger than that round trip leaves open; on one host there is none.

    `stopped_us`: for how long it has stood still.
    """

    def __init__(self, control: dist.ProcessGroup) -> None:
        self._control, self._first = control, 0
        self._ahead_ns = _nanoseconds_ahead(control)
        self.stopped_us = 0
        self._stands_at: int | None = None

    def among(self, control: dist.ProcessGroup, first: int) -> ReplayClock:
        """Return the same clock for a group of some of the processes, which meet without the others."""
        other = copy(self)
        other._control, other._first = control, first
        return other

    def now(self) -> int:
        """Return microseconds since some fixed moment, without those for which the clock has stood still."""
        stands_at = self._stands_at
        return self._moment() if stands_at is None else stands_at

    def _moment(self) -> int:
        return (perf_counter_ns() - self._ahead_ns) // 1000 - self.stopped_us

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have the clock stand still during the block, which all processes enter, each when it gets there.

        A process that has got there later by its clock also goes on so much later. So no measured time tells that the
        block took any, or that processes have waited for one another.
        """
        self._stands_at = own = self._moment()
        yield
        first = torch.tensor(own)
        dist.all_reduce(first, dist.ReduceOp.MIN, self._control)
        resumed = torch.tensor(self._moment() + _LEAD_US)
        dist.broadcast(resumed, self._first, self._control)
        self.stopped_us += int(resumed - first)
        while (left := own - self._moment()) > 0:
            sleep(left / 1e6)
        self._stands_at = None

    def wait_until(self, moment_us: int) -> None:
        """Sleep until a moment; return at once if it is past."""
        while (left := moment_us - self.now()) > 0:
            sleep(left / 1e6)

    def meet(self) -> int:
        """Wait for all processes, and return the moment at which all of them go on."""
        dist.barrier(self._control)
        moment = torch.tensor(self.now() + _LEAD_US)
        dist.broadcast(moment, self._first, self._control)
        self.wait_until(int(moment))
        return int(moment)


def _nanoseconds_ahead(control: dist.ProcessGroup) -> int:
    """Return how far this process's clock is ahead of the first one's."""
    ahead = torch.zeros((), dtype=torch.long)
    for rank in range(1, dist.get_world_size(control)):
        if dist.get_rank() == 0:
            _, found = min(_round_trip(rank, control) for _ in range(_ROUNDS))
            dist.send(torch.tensor(found), rank, control)
        elif dist.get_rank() == rank:
            for _ in range(_ROUNDS):
                dist.recv(torch.zeros((), dtype=torch.long), 0, control)
                dist.send(torch.tensor(perf_counter_ns()), 0, control)
            dist.recv(ahead, 0, control)
    return int(ahead)


def _round_trip(rank: int, control: dist.ProcessGroup) -> tuple[int, int]:
    """Return duration of a question to `rank` and its answer, and how far its clock is ahead as far as they tell."""
    answer = torch.zeros((), dtype=torch.long)
    start = perf_counter_ns()
    dist.send(answer, rank, control)
    dist.recv(answer, rank, control)
    end = perf_counter_ns()
    ahead = int(answer) - (start + end) // 2
    return end - start, ahead if abs(ahead) > (end - start) // 2 else 0
