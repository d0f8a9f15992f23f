"""A finite plan timed anew in its old order: every operation as early as the order of its GPU or links permits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import JobDecision


def shifted(
    operations: Operations, decisions: Sequence[JobDecision], moment: int, after: Mapping[int, Collection[int]]
) -> list[JobDecision]:
    """Return decisions with the new durations; levels, GPUs and the order on every GPU and link stay.

    Where durations have not grown nothing starts later than it did, so the order alone bounds what a change costs.

    `moment`: what started earlier stays; the rest starts no earlier than it, in microseconds.
    """
    clocks = [_JobClock(operations, job, decision) for job, decision in zip(operations.jobs, decisions, strict=True)]
    free: defaultdict[object, int] = defaultdict(int)
    order = sorted(entry for number, clock in enumerate(clocks) for entry in clock.entries(number))
    for start, iteration, bucket, slot, number in order:
        clock = clocks[number]
        least, duration, lanes = clock.next(iteration, bucket, slot)
        # All operations of these jobs come before in the order.
        least = max([least, *(clocks[other].end for other in after.get(number, ()))])
        # A transfer of no length takes no link.
        begin = max([least, moment, *(free[lane] for lane in lanes)]) if start >= moment else start
        for lane in lanes:
            free[lane] = begin + duration
        clock.lay(iteration, bucket, slot, begin, begin + duration)
    return [clock.decision() for clock in clocks]


class _JobClock:
    """Progress of a job while its operations are timed anew."""

    def __init__(self, operations: Operations, job: OperationGraph, old: JobDecision) -> None:
        self.job, self.old = job, old
        servers = operations.cluster.servers
        channel = operations.routes.under(job.route_policy).channel(Counter(server for server, _ in old.gpus))
        assert channel is not None, "only jobs whose servers are joined are timed"
        self.channel = channel
        self.tables = [
            block.duration_us[servers[server].gpu_type] for block, (server, _) in zip(job.blocks, old.gpus, strict=True)
        ]
        self.blocks = [[0] * job.slots for _ in range(job.iterations)]
        self.moves = [[0] * len(job.transfers) for _ in range(job.iterations)]
        self.barrier = self.end = job.release_us
        self.iteration = 0
        self.exchanged = 0

    def entries(self, number: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield old start, iteration, bucket (0: a block), slot and job of every operation.

        Sorting them keeps the order of the job's operations.
        """
        for i, (blocks, moves) in enumerate(zip(self.old.block_starts, self.old.transfer_starts, strict=True)):
            for slot, start in enumerate(blocks):
                yield start, i, 0, slot, number
            for bucket, start in enumerate(moves, 1):
                yield start, i, bucket, 0, number

    def next(self, iteration: int, bucket: int, slot: int) -> tuple[int, int, list[object]]:
        """Return the earliest start, duration, and GPU or links of an operation."""
        if iteration > self.iteration:
            self.iteration, self.barrier, self.exchanged = iteration, self.end, 0
        levels = self.old.levels[iteration]
        if not bucket:
            return self.barrier, self.tables[slot][levels[slot] - 1], [self.old.gpus[slot]]
        reach = [s for s, level in enumerate(levels) if level >= bucket]
        ready = max(self.blocks[iteration][s] + self.tables[s][bucket - 1] for s in reach)
        duration = self.job.transfer_us(bucket, len(reach), self.channel)
        return max(ready, self.exchanged), duration, list(self.channel.links) if duration else []

    def lay(self, iteration: int, bucket: int, slot: int, start: int, end: int) -> None:
        """Record when an operation runs."""
        self.end = max(self.end, end)
        if bucket:
            self.moves[iteration][bucket - 1], self.exchanged = start, end
        else:
            self.blocks[iteration][slot] = start

    def decision(self) -> JobDecision:
        """Return the job with its new starts."""
        return JobDecision(self.old.gpus, self.old.levels, self.blocks, self.moves)
