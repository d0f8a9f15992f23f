"""A solution read back: its order of operations, run again in exact integers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.ilp_timetable.memory import Following
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.problem.compiled.timetable import JobDecision
from jigsaw_opt.problem.costs import contributors

if TYPE_CHECKING:
    import pulp

Value = Callable[["pulp.LpVariable"], float]
"""Value of a variable in a solution."""
_Free = dict[tuple[str, int], int]
"""Moment from which a GPU or a link is free."""


def decisions_of(
    eligibility: GpuEligibility, jobs: Sequence[JobVariables], value: Value, following: Following
) -> list[JobDecision]:
    """Return what a solution decides, with exact times.

    Placement and levels are the solution's own; operations run in its order, each as early as it can. Its starts
    serve as priorities only, so the times are exact integers, and no operation runs later than in the solution.

    Notes
    -----
    Jobs that follow one another for their memory still do. Jobs of which none follows another were counted together
    at the begin of the last of them, so any of those that are present at a moment fit.
    """
    runs = [_JobRun(eligibility, job_vars, value) for job_vars in jobs]
    _add_predecessors(runs, following, value)
    free: _Free = defaultdict(int)
    # The turns of each job are in order already; ties go by rank and number, so one solution gives one plan.
    for turn in merge(*(run.turns() for run in runs)):
        runs[turn.job].take(turn, free)
    return [run.decision for run in runs]


def _add_predecessors(runs: Sequence[_JobRun], following: Following, value: Value) -> None:
    """Tell each job after which others it begins, and give it a rank behind theirs."""
    begins = [min(run.starts(0)) for run in runs]
    for number in sorted(range(len(runs)), key=begins.__getitem__):
        run, before = runs[number], (j for (j, k), after in following.items() if k == number and value(after) > 0.5)
        run.after = [runs[j] for j in before if begins[j] < begins[number]]
        run.rank = 1 + max((other.rank for other in run.after), default=-1)


class _OperationTurn(NamedTuple):
    """An operation's place in the order; `operation` counts the blocks of an iteration, then its transfers.

    At one moment, jobs go by their `rank`: a job that follows another has a larger one.
    """

    priority: float
    rank: int
    job: int
    iteration: int
    position: int
    operation: int


class _JobRun:
    """One job, run operation by operation on the resources that it shares."""

    def __init__(self, eligibility: GpuEligibility, job_vars: JobVariables, value: Value) -> None:
        self.job_vars, self.value = job_vars, value
        self.gpus = [g for g, assigned in job_vars.assigned.items() if value(assigned) > 0.5]
        channel = eligibility.routes(job_vars.job).channel(Counter(eligibility.server(g) for g in self.gpus))
        if channel is None:
            raise ValueError(f"no path joins all servers of job {job_vars.job.name}")
        self.channel = channel
        self.after: list[_JobRun] = []
        self.rank = 0
        self.times = [block_us(job_vars.job, eligibility.gpu_type(g)) for g in self.gpus]
        self.levels = [[max(row[g], key=lambda d: value(row[g][d])) for g in self.gpus] for row in job_vars.levels]
        self.blocks = [[0] * len(self.gpus) for _ in job_vars.levels]
        self.transfers = [[0] * len(job_vars.job.transfers) for _ in job_vars.levels]
        self.end = self.barrier = self.exchanged = job_vars.job.release_us
        self.decision = JobDecision([eligibility.gpus[g] for g in self.gpus], self.levels, self.blocks, self.transfers)

    def turns(self) -> Iterator[_OperationTurn]:
        """Yield all operations in their order; rounding and ties never reverse two iterations or two buckets."""
        now = max((other.last for other in self.after), default=0.0)
        for i in range(len(self.levels)):
            for position, (priority, operation) in enumerate(sorted((p, n) for n, p in enumerate(self._priorities(i)))):
                now = max(now, priority)
                yield _OperationTurn(now, self.rank, self.job_vars.number, i, position, operation)

    @cached_property
    def last(self) -> float:
        """Priority of its last operation."""
        return max(turn.priority for turn in self.turns())

    def starts(self, i: int) -> list[float]:
        """Return the starts of the blocks of an iteration in the solution."""
        return [self.value(self.job_vars.starts[i][g]) for g in self.gpus]

    def _priorities(self, i: int) -> list[float]:
        """Return starts of blocks and transfers; transfers without variables share nothing and may come last.

        No transfer comes before its contributors' blocks, however short these are beside the engine's tolerance.
        """
        blocks = self.starts(i)
        if not self.job_vars.exchanges:
            return blocks + [max(blocks)] * len(self.job_vars.job.transfers)
        transfers = (
            max([self.value(exchange.start), *(p for p, d in zip(blocks, self.levels[i], strict=True) if d >= bucket)])
            for bucket, exchange in enumerate(self.job_vars.exchanges[i], 1)
        )
        return blocks + list(accumulate(transfers, max))

    def take(self, turn: _OperationTurn, free: _Free) -> None:
        """Run an operation as soon as what comes before it and its resources allow.

        `free`: when each GPU and link is free, in microseconds; moved on to its end.
        """
        # The first operation of an iteration: all of the one before has run, so its end is the barrier, and so is that
        # of all jobs that this one follows.
        if turn.position == 0:
            self.end = max([self.end, *(other.end for other in self.after)])
            self.barrier = self.exchanged = self.end
        if turn.operation < len(self.gpus):
            self._run_block(turn.iteration, turn.operation, free)
        else:
            self._run_transfer(turn.iteration, turn.operation - len(self.gpus), free)

    def _run_block(self, i: int, worker: int, free: _Free) -> None:
        gpu = ("gpu", self.gpus[worker])
        start = max(self.barrier, free[gpu])
        self.blocks[i][worker] = start
        free[gpu] = start + self.times[worker][self.levels[i][worker] - 1]
        self.end = max(self.end, free[gpu])

    def _run_transfer(self, i: int, transfer: int, free: _Free) -> None:
        levels, bucket = self.levels[i], transfer + 1
        ready = (s + t[transfer] for s, t, d in zip(self.blocks[i], self.times, levels, strict=True) if d >= bucket)
        start = max(self.exchanged, *ready)
        duration = self.job_vars.job.transfer_us(bucket, contributors(levels, bucket), self.channel)
        # A transfer of no duration overlaps nothing, so it waits for no link.
        if duration:
            start = max([start, *(free["link", k] for k in self.channel.links)])
            free.update((("link", k), start + duration) for k in self.channel.links)
        self.transfers[i][transfer] = start
        self.exchanged = start + duration
        self.end = max(self.end, self.exchanged)
