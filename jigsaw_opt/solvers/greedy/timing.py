"""List scheduling: a simulation in which no GPU and no link idles while a piece waits for it.

Events are barriers, GPUs and links that become free, and buckets that become ready. At each moment all
its events are taken first; then every GPU and link that they touch takes the waiting piece of
the best priority. Levels are handed out when an iteration opens, the deepest block to the GPU with
the lowest skyline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from jigsaw_opt.solvers.greedy.placed import PlacedJob

__all__ = ["ListSchedule", "Priority", "list_schedule"]

Priority = Callable[[PlacedJob, int], float]
"""Priority of a job's pieces by the iterations it has left; the smallest goes first."""

Piece = tuple[int, int, int]

_BARRIER, _GPU, _READY, _LINK = range(4)


@dataclass(slots=True)
class ListSchedule:
    """A timetable in the making, by job and iteration.

    Parameters
    ----------
    levels, blocks, transfers
        Levels of the slots, starts of the blocks and of the transfers.
    ends
        End of each job.
    trace
        Pieces as ``(job, iteration, piece)`` in the order in which they started: block of slot ``piece``
        from 0, transfer of bucket ``-piece`` below 0.
    """

    levels: list[list[Sequence[int]]]
    blocks: list[list[list[int]]]
    transfers: list[list[list[int]]]
    ends: list[int]
    trace: list[Piece] = field(default_factory=list)


def list_schedule(jobs: Sequence[PlacedJob], gpus: int, links: int, priority: Priority) -> ListSchedule:
    """Schedule all placed jobs from their releases on.

    Parameters
    ----------
    jobs
        The jobs, placed.
    gpus, links
        How many there are.
    priority
        Who goes first.
    """
    return _Simulation(jobs, gpus, links, priority).run()


class _Simulation:
    def __init__(self, jobs: Sequence[PlacedJob], gpus: int, links: int, priority: Priority) -> None:
        self.jobs, self.priority = jobs, priority
        self.events: list[tuple[int, int, int]] = []
        self.gpu_free, self.link_free = [0] * gpus, [0] * links
        self.gpu_queue: list[list[tuple[float, int, int]]] = [[] for _ in range(gpus)]
        self.link_queue: list[list[tuple[float, int]]] = [[] for _ in range(links)]
        self.skyline = [0] * gpus
        self.urgency = [0.0] * len(jobs)
        self.to_start = [0] * len(jobs)
        self.bucket = [0] * len(jobs)
        self.ready: list[list[int]] = [[] for _ in jobs]
        self.block_end = [0] * len(jobs)
        self.out = ListSchedule([[] for _ in jobs], [[] for _ in jobs], [[] for _ in jobs], [0] * len(jobs))
        self._expect()

    def run(self) -> ListSchedule:
        events, jobs = self.events, self.jobs
        for index, job in enumerate(jobs):
            heappush(events, (job.job.release_us, _BARRIER, index))
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
        return self.out

    def _expect(self) -> None:
        """The skyline of a GPU counts all work that is to come; blocks replace their mean as they take levels."""
        for job in self.jobs:
            for gpu, slot_us in zip(job.gpus, job.slot_us, strict=True):
                self.skyline[gpu] += slot_us * job.job.iterations

    def _open(self, index: int) -> list[int]:
        """Begin the job's next iteration: choose its levels and queue its blocks. Returns the GPUs."""
        job, out = self.jobs[index], self.out
        iteration = len(out.blocks[index])
        levels = self._levels(job, iteration)
        out.levels[index].append(levels)
        out.blocks[index].append([0] * len(job.gpus))
        self.urgency[index] = urgency = self.priority(job, job.job.iterations - iteration)
        self.to_start[index] = len(job.gpus)
        self.ready[index] = [0] * job.job.levels
        self.block_end[index] = 0
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
        job, out = self.jobs[index], self.out
        iteration = len(out.blocks[index]) - 1
        out.blocks[index][iteration][slot] = now
        out.trace.append((index, iteration, slot))
        level, table, ready = out.levels[index][iteration][slot], job.tables[slot], self.ready[index]
        end = now + table[level - 1]
        self.gpu_free[gpu] = end
        heappush(self.events, (end, _GPU, gpu))
        for bucket in range(level):
            moment = now + table[bucket]
            if moment > ready[bucket]:
                ready[bucket] = moment
        if end > self.block_end[index]:
            self.block_end[index] = end
        self.to_start[index] -= 1
        if not self.to_start[index]:
            self._all_started(index, job, iteration)

    def _all_started(self, index: int, job: PlacedJob, iteration: int) -> None:
        """Every bucket's readiness is known; transfers that no one can delay are timed at once."""
        starts: list[int] = []
        self.out.transfers[index].append(starts)
        ready, exchange = self.ready[index], job.exchange[iteration]
        if exchange and job.links:
            self.bucket[index] = 0
            heappush(self.events, (ready[0], _READY, index))
            return
        end = 0
        for moment, duration in zip(ready, exchange, strict=False):
            start = moment if moment > end else end
            starts.append(start)
            end = start + duration
        self._close(index, job, iteration, end)

    def _close(self, index: int, job: PlacedJob, iteration: int, exchanged: int) -> None:
        barrier = max(exchanged, self.block_end[index])
        if iteration + 1 < job.job.iterations:
            heappush(self.events, (barrier, _BARRIER, index))
        else:
            self.out.ends[index] = barrier

    def _start_transfers(self, waiting: list[tuple[float, int]], links: list[int], now: int) -> None:
        """Start what is ready and finds its links free; the rest waits at one of its busy links."""
        free, queues = self.link_free, self.link_queue
        # A freed link offers its waiters too, best first, until one takes it.
        for link in links:
            if free[link] <= now and queues[link]:
                waiting += queues[link]
                queues[link] = []
        waiting.sort()
        for urgency, index in waiting:
            busy = max(self.jobs[index].links, key=free.__getitem__)
            if free[busy] <= now:
                self._start_transfer(index, now)
            else:
                self._wait(busy, urgency, index)

    def _wait(self, link: int, urgency: float, index: int) -> None:
        if not self.link_queue[link]:
            heappush(self.events, (self.link_free[link], _LINK, link))
        self.link_queue[link].append((urgency, index))

    def _start_transfer(self, index: int, now: int) -> None:
        job, out = self.jobs[index], self.out
        iteration, bucket = len(out.blocks[index]) - 1, self.bucket[index]
        exchange = job.exchange[iteration]
        out.transfers[index][iteration].append(now)
        out.trace.append((index, iteration, -bucket - 1))
        end = now + exchange[bucket]
        for link in job.links:
            self.link_free[link] = end
        bucket += 1
        if bucket == len(exchange):
            self._close(index, job, iteration, end)
            return
        self.bucket[index] = bucket
        heappush(self.events, (max(end, self.ready[index][bucket]), _READY, index))
