"""Jobs inserted one after another in an order, and annealing of that order: written from docs/specification.md alone.

The first order is Smith's (work over weight, smallest first) for weighted completions, and the longest job first
otherwise. Each job goes where it ends first: contiguous servers in the order of the list, on each such window the GPUs
that are free first, every block and transfer in the first gap that holds it. Then one job at a time changes its place
in the order, and simulated annealing says what is kept.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from attempt import Attempt

from jigsaw_opt.problem import Channel, Instance, OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, Timetable, assemble
from jigsaw_opt.problem.costs import contributors

_HOT = 0.01
"""Share of the objective that the first moves may well lose; it falls to 0 with the time."""
_FOREVER = 1 << 62

Rows = list[list[int]]
Interval = tuple[int, int]


def unsupported(instance: Instance) -> str | None:
    """Never: it takes every instance."""
    return None


def solve(attempt: Attempt) -> None:
    """Insert the jobs in the first order, then in others, each a move of one job away, until the time is over."""
    operations, draw = attempt.operations, random.Random(attempt.seed)
    insertion, order = OrderedInsertion(operations), first_order(operations)
    value, tries = insertion.insert(order), 1
    _offer(attempt, insertion, value)
    while len(order) > 1 and attempt.remaining > 0:
        after = list(order)
        after.insert(draw.randrange(len(order)), after.pop(draw.randrange(len(order))))
        other = insertion.insert(after)
        _offer(attempt, insertion, other)
        left = attempt.remaining / attempt.time_limit
        if other <= value - _HOT * left * left * min(value, other) * math.log(1.0 - draw.random()):
            order, value = after, other
        tries += 1
    attempt.note = f"{tries} orders"


def first_order(operations: Operations) -> list[int]:
    """Smith's rule for weighted completions, else the longest job first."""
    jobs = operations.jobs
    if operations.objective == "weighted_completion":
        return sorted(range(len(jobs)), key=lambda index: _work_us(jobs[index]) / jobs[index].weight)
    return sorted(range(len(jobs)), key=lambda index: -_work_us(jobs[index]) / jobs[index].slots)


def _offer(attempt: Attempt, insertion: OrderedInsertion, value: int) -> None:
    if value < (_FOREVER if attempt.objective is None else attempt.objective):
        attempt.offer(insertion.timetable())


def _work_us(job: OperationGraph) -> int:
    """Time of all blocks of a job on its fastest type of GPU."""
    tables = job.blocks[0].duration_us
    fastest = min((tables[kind] for kind in job.gpu_types), key=lambda table: table[-1])
    return sum(fastest[level - 1] for row in _rows(job) for level in row)


def _rows(job: OperationGraph) -> Rows:
    """Levels by iteration, descending, as shallow as coverage and mean depth permit (specification: depth-rules)."""
    rule = job.rule
    if rule.multiset is not None:
        return [list(rule.multiset[::-1])] * job.iterations
    rows = [
        [job.levels] * rule.min_contributors + [1] * (job.slots - rule.min_contributors) for _ in range(job.iterations)
    ]
    missing = rule.min_total - sum(map(sum, rows))
    for slot in range(rule.min_contributors, job.slots):
        for row in rows:
            row[slot] += (more := max(0, min(missing, job.levels - 1)))
            missing -= more
    return rows


class _Calendar:
    """Busy intervals of a GPU or link, in order and disjoint."""

    def __init__(self) -> None:
        self.busy: list[Interval] = []

    def earliest(self, moment: int, duration: int) -> int:
        """Start of the first gap of so much time, not before a moment."""
        busy, at = self.busy, bisect_right(self.busy, (moment, _FOREVER))
        if duration and at and busy[at - 1][1] > moment:
            moment = busy[at - 1][1]
        while duration and at < len(busy) and busy[at][0] - moment < duration:
            moment, at = max(moment, busy[at][1]), at + 1
        return moment


@dataclass(slots=True)
class _Inserted:
    """A job on its GPUs with all its starts, and what it keeps busy."""

    index: int
    gpus: list[Gpu]
    end: int = 0
    levels: Rows = field(default_factory=list)
    starts: Rows = field(default_factory=list)
    transfers: Rows = field(default_factory=list)
    busy: list[tuple[_Calendar, Interval]] = field(default_factory=list)


class OrderedInsertion:
    """A timetable into which jobs are inserted in an order; what an order shares with the last one stays.

    Of a cyclic instance the next period begins when all jobs have ended.
    """

    def __init__(self, operations: Operations) -> None:
        servers = operations.cluster.servers
        self.operations, self.rows = operations, [_rows(job) for job in operations.jobs]
        self.gpus = {(s, k): _Calendar() for s, server in enumerate(servers) for k in range(server.gpus)}
        self.links = [_Calendar() for _ in operations.cluster.links]
        self.hosted: dict[Gpu, list[OperationGraph]] = {gpu: [] for gpu in self.gpus}
        self.done: list[_Inserted] = []

    def insert(self, order: Sequence[int]) -> int:
        """Insert the jobs in an order; returns the objective, or more than any where one finds no place."""
        kept = 0
        while kept < len(self.done) and self.done[kept].index == order[kept]:
            kept += 1
        while len(self.done) > kept:
            self._take_out(self.done.pop())
        for index in order[kept:]:
            found = self._best(index)
            if found is None:
                return _FOREVER
            self._put_in(found)
            self.done.append(found)
        if self.operations.objective == "weighted_completion":
            return sum(self.operations.jobs[each.index].weight * each.end for each in self.done)
        return max(each.end for each in self.done)

    def timetable(self) -> Timetable:
        """The timetable once all jobs are in."""
        decisions = {each.index: JobDecision(each.gpus, each.levels, each.starts, each.transfers) for each in self.done}
        jobs = assemble(self.operations, [decisions[index] for index in range(len(self.operations.jobs))])
        return Timetable(jobs, max(job.end_us for job in jobs) if self.operations.horizon == "cyclic" else None)

    def _put_in(self, inserted: _Inserted) -> None:
        for gpu in inserted.gpus:
            self.hosted[gpu].append(self.operations.jobs[inserted.index])
        for calendar, interval in inserted.busy:
            insort(calendar.busy, interval)

    def _take_out(self, inserted: _Inserted) -> None:
        for gpu in inserted.gpus:
            self.hosted[gpu].pop()
        for calendar, interval in inserted.busy:
            calendar.busy.remove(interval)

    def _best(self, index: int) -> _Inserted | None:
        """The job where it ends first."""
        best = None
        for gpus in self._windows(self.operations.jobs[index]):
            channel = self.operations.routes.channel(Counter(server for server, _ in gpus))
            if channel is not None:
                found = self._inserted(index, gpus, channel, best.end if best is not None else _FOREVER)
                best = found or best
        return best

    def _windows(self, job: OperationGraph) -> Iterator[list[Gpu]]:
        """The GPUs that are free first on the fewest contiguous servers from each one on that have room."""
        servers = self.operations.cluster.servers
        for first in range(len(servers)):
            free: list[tuple[int, Gpu]] = []
            for s in range(first, len(servers)):
                kind = servers[s].gpu_type
                for gpu in ((s, k) for k in range(servers[s].gpus)) if kind in job.gpu_types else ():
                    if self._has_room(gpu, job):
                        longest = job.blocks[0].duration_us[kind][-1]
                        free.append((self.gpus[gpu].earliest(job.release_us, longest) + longest, gpu))
                if s == first and not free:
                    break
                if len(free) >= job.slots:
                    yield [gpu for _, gpu in sorted(free)[: job.slots]]
                    break

    def _has_room(self, gpu: Gpu, job: OperationGraph) -> bool:
        """Whether a GPU has memory for a worker of a job at any level (specification: memory)."""
        together = [*self.hosted[gpu], job]
        need = sum(each.state_bytes for each in together) + max(each.activation_bytes[-1] for each in together)
        return need <= self.operations.cluster.servers[gpu[0]].gpu_memory

    def _inserted(self, index: int, gpus: list[Gpu], channel: Channel, before: int) -> _Inserted | None:
        """The job on some GPUs; None where it does not end before a moment."""
        job, rows, it = self.operations.jobs[index], self.rows[index], _Inserted(index, gpus)
        totals, balance = [0] * job.slots, job.rule.balance
        it.end = job.release_us
        for row in rows:
            self._insert_iteration(it, row, totals if balance is not None else None, channel)
            totals = [total + level for total, level in zip(totals, it.levels[-1], strict=True)]
            if it.end >= before:
                return None
        if balance is not None and max(totals) - min(totals) > balance:
            # Equal totals keep every balance.
            it, full = _Inserted(index, gpus, job.release_us), [job.levels] * job.slots
            for _ in rows:
                self._insert_iteration(it, full, None, channel)
        return it if it.end < before else None

    def _insert_iteration(
        self, inserted: _Inserted, row: list[int], totals: list[int] | None, channel: Channel
    ) -> None:
        """Insert an iteration behind the last one: the deepest block on the GPU free first, or of the least total."""
        job, barrier = self.operations.jobs[inserted.index], inserted.end
        kinds = [self.operations.cluster.servers[s].gpu_type for s, _ in inserted.gpus]
        tables = [job.blocks[0].duration_us[kind] for kind in kinds]
        calendars = [self.gpus[gpu] for gpu in inserted.gpus]
        deepest = [(calendars[k].earliest(barrier, tables[k][-1]) + tables[k][-1], k) for k in range(job.slots)]
        levels, starts, moves = [0] * job.slots, [0] * job.slots, []
        for level, (_, k) in zip(row, sorted(deepest, key=lambda e: (totals[e[1]] if totals else 0, e)), strict=True):
            levels[k], starts[k] = level, calendars[k].earliest(barrier, tables[k][level - 1])
            busy = starts[k], starts[k] + tables[k][level - 1]
            inserted.busy.append((calendars[k], busy))
            inserted.end = max(inserted.end, busy[1])
        before = barrier
        for bucket in range(1, len(job.transfers) + 1):
            ready = max(starts[k] + tables[k][bucket - 1] for k in range(job.slots) if levels[k] >= bucket)
            duration = job.transfer_us(bucket, contributors(levels, bucket), channel)
            start = self._together(channel, max(before, ready), duration)
            before = start + duration
            moves.append(start)
            inserted.busy += [(self.links[link], (start, before)) for link in channel.links if duration]
        inserted.end = max(inserted.end, before)
        inserted.levels.append(levels)
        inserted.starts.append(starts)
        inserted.transfers.append(moves)

    def _together(self, channel: Channel, moment: int, duration: int) -> int:
        """Start of the first gap of all links of a channel."""
        while True:
            start = max((self.links[link].earliest(moment, duration) for link in channel.links), default=moment)
            if start == moment:
                return start
            moment = start
