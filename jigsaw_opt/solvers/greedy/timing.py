"""List scheduling: a simulation in which no GPU and no link idles while a piece waits for it.

Events are barriers, GPUs and links that become free, and buckets that become ready. At each moment all
its events are taken first; then every GPU and link that they touch takes the waiting piece of
the best priority. Levels are handed out when an iteration opens, the deepest block to the GPU with
the lowest skyline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from jigsaw_opt.solvers.greedy.placed import PlacedJob
from jigsaw_opt.solvers.greedy.progress import Progress

__all__ = ["Piece", "Priority", "Schedule", "list_schedule"]

Priority = Callable[[PlacedJob, int], float]
"""Priority of a job's pieces by the iterations it has left; the smallest goes first."""

Piece = tuple[int, int]
"""A piece of a job's current iteration: (job, slot) for a block, (job, -1) for the next transfer over links."""

_BARRIER, _GPU, _READY, _LINK = range(4)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When every piece starts.

    Parameters
    ----------
    jobs
        Each job with all its iterations done.
    trace
        The pieces that use a GPU or links, in the order in which they started.
    """

    jobs: list[Progress]
    trace: list[Piece]


def list_schedule(
    jobs: Sequence[PlacedJob],
    gpus: int,
    links: int,
    priority: Priority,
    factors: Sequence[float],
    hold_us: Sequence[int],
) -> Schedule:
    """Schedule all placed jobs from their releases on.

    Parameters
    ----------
    jobs
        The jobs, placed.
    gpus, links
        How many there are.
    priority
        Who goes first.
    factors
        By job, multiplies its priority.
    hold_us
        By job, it starts no earlier than this moment nor than its release.
    """
    simulation = _Simulation(jobs, gpus, links, lambda index, left: priority(jobs[index], left) * factors[index])
    return simulation.run([max(hold, job.job.release_us) for hold, job in zip(hold_us, jobs, strict=True)])


class _Simulation:
    def __init__(
        self, jobs: Sequence[PlacedJob], gpus: int, links: int, urgency_of: Callable[[int, int], float]
    ) -> None:
        self.jobs = [Progress(job) for job in jobs]
        self.urgency_of = urgency_of
        self.events: list[tuple[int, int, int]] = []
        self.gpu_free, self.link_free = [0] * gpus, [0] * links
        self.gpu_queue: list[list[tuple[float, int, int]]] = [[] for _ in range(gpus)]
        self.link_queue: list[list[tuple[float, int]]] = [[] for _ in range(links)]
        self.urgency = [0.0] * len(jobs)
        self.trace: list[Piece] = []
        # The skyline of a GPU counts all work to come; blocks replace their mean once they have levels.
        self.skyline = [0] * gpus
        for job in jobs:
            for gpu, slot_us in zip(job.gpus, job.slot_us, strict=True):
                self.skyline[gpu] += slot_us * job.job.iterations

    def run(self, starts_us: Sequence[int]) -> Schedule:
        events = self.events
        for index, start in enumerate(starts_us):
            heappush(events, (start, _BARRIER, index))
        while events:
            now = events[0][0]
            gpus: list[int] = []
            links: list[int] = []
            waiting: list[tuple[float, int]] = []
            while events and events[0][0] == now:
                _, kind, index = heappop(events)
                if kind == _BARRIER:
                    gpus += self._open(index)
                elif kind == _GPU:
                    gpus.append(index)
                elif kind == _READY:
                    waiting.append((self.urgency[index], index))
                else:
                    links.append(index)
            for gpu in gpus:
                if self.gpu_queue[gpu] and self.gpu_free[gpu] <= now:
                    self._start_block(gpu, now)
            self._start_transfers(waiting, links, now)
        return Schedule(self.jobs, self.trace)

    def _open(self, index: int) -> list[int]:
        """Begin the job's next iteration: choose its levels and queue its blocks. Returns the GPUs."""
        progress = self.jobs[index]
        job, iteration = progress.job, len(progress.levels)
        levels = self._levels(job, iteration)
        progress.open(levels)
        self.urgency[index] = urgency = self.urgency_of(index, job.job.iterations - iteration)
        queue, skyline = self.gpu_queue, self.skyline
        for slot, gpu in enumerate(job.gpus):
            skyline[gpu] += job.tables[slot][levels[slot] - 1] - job.slot_us[slot]
            heappush(queue[gpu], (urgency, index, slot))
        return job.gpus

    def _levels(self, job: PlacedJob, iteration: int) -> Sequence[int]:
        row = job.plan.rows[iteration]
        if job.plan.fixed or row[0] == row[-1]:
            return row
        skyline, gpus = self.skyline, job.gpus
        low = sorted(range(len(gpus)), key=lambda slot: (skyline[gpus[slot]], slot))
        levels = [0] * len(gpus)
        for level in row:
            at = 0
            while job.caps is not None and job.caps[low[at]] < level:
                at += 1
            levels[low.pop(at)] = level
        return levels

    def _start_block(self, gpu: int, now: int) -> None:
        _, index, slot = heappop(self.gpu_queue[gpu])
        progress = self.jobs[index]
        self.trace.append((index, slot))
        self.gpu_free[gpu] = end = progress.start_block(slot, now)
        heappush(self.events, (end, _GPU, gpu))
        if progress.blocks_left:
            return
        if progress.uses_links:
            heappush(self.events, (progress.transfer_from(), _READY, index))
        else:
            progress.exchange_alone()
            self._close(index)

    def _close(self, index: int) -> None:
        progress = self.jobs[index]
        if not progress.complete:
            heappush(self.events, (progress.end, _BARRIER, index))

    def _start_transfers(self, waiting: list[tuple[float, int]], links: list[int], now: int) -> None:
        """Start what is ready and finds its links free; the rest waits at one of its busy links."""
        free, queues = self.link_free, self.link_queue
        for link in links:
            waiting += queues[link]
            queues[link] = []
        waiting.sort()
        for urgency, index in waiting:
            busy = max(self.jobs[index].job.links, key=free.__getitem__)
            if free[busy] <= now:
                self._start_transfer(index, now)
                continue
            if not queues[busy]:
                heappush(self.events, (free[busy], _LINK, busy))
            queues[busy].append((urgency, index))

    def _start_transfer(self, index: int, now: int) -> None:
        progress = self.jobs[index]
        self.trace.append((index, -1))
        end = progress.start_transfer(now)
        for link in progress.job.links:
            self.link_free[link] = end
        if progress.exchanged:
            self._close(index)
        else:
            heappush(self.events, (progress.transfer_from(), _READY, index))
