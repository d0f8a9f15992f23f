"""Placed jobs of fixed levels modulo a given period, as a CP-SAT model; in formulas in ``docs/search.md``.

What runs a block is a *machine*: a GPU, or all GPUs of a server together, where a block takes as long as the longest of
them. Then the model is small, and whatever it finds is a timing of the GPUs too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.formulations.disjoint import LINKS, Busy, User, add_no_overlaps, operation_intervals

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class CyclicIteration:
    """One iteration of a job, all times in microseconds.

    `ready`: for each machine, when it has each bucket ready after its block begins; 0 for one that it does not reach.
    `sizes`: duration of the block of each machine. `exchange`: durations of the transfers, by bucket.
    """

    ready: Sequence[Sequence[int]]
    sizes: Sequence[int]
    exchange: Sequence[int]


@dataclass(frozen=True, slots=True)
class CyclicTask:
    """A placed job.

    `machines, links`: numbers of its machines and of the links of its transfers.
    """

    machines: Sequence[int]
    links: Sequence[int]
    iterations: Sequence[CyclicIteration]


@dataclass(frozen=True, slots=True)
class CyclicTiming:
    """The times of one job, which takes at most one period from its first block to its last end.

    `blocks, transfers`: starts by iteration: of each machine's block, of each bucket's transfer.
    """

    blocks: list[list[int]]
    transfers: list[list[int]]
    end: int


@dataclass(frozen=True, slots=True)
class CpSatCyclicTiming:
    """Variables and constraints.

    `tasks`: variables, one entry for each job.
    """

    tasks: Sequence[_Variables]
    proto: cp_model.CpModel

    def plan(self, value: Callable[[cp_model.IntVar], int]) -> list[CyclicTiming]:
        """Return the timing of each job in a solution, given the value of each variable."""
        return [
            CyclicTiming(
                [[value(start) for start in row] for row in task.blocks],
                [[value(start) for start in row] for row in task.transfers],
                value(task.ends[-1]),
            )
            for task in self.tasks
        ]


@dataclass(frozen=True, slots=True)
class _Variables:
    """Start of each block and transfer, and the barrier, by iteration."""

    task: CyclicTask
    blocks: list[list[cp_model.IntVar]]
    transfers: list[list[cp_model.IntVar]]
    ends: list[cp_model.IntVar]


def build(tasks: Sequence[CyclicTask], period: int, busy_machines: Busy, busy_links: Busy) -> CpSatCyclicTiming:
    """Build the model; any solution will do."""
    proto = new_model()
    # Where nothing is fixed, the period may be cut anywhere, so one job may begin at 0.
    free = not any(busy_machines.values()) and not any(busy_links.values())
    jobs = [_add_job(proto, task, period, first=free and number == 0) for number, task in enumerate(tasks)]
    _add_disjoint(proto, jobs, period, busy_machines, busy_links)
    return CpSatCyclicTiming(jobs, proto)


def _add_job(proto: cp_model.CpModel, task: CyclicTask, period: int, first: bool) -> _Variables:
    """Add readiness, order and barrier, which wraps (specification: readiness, order, barrier, period)."""
    job_vars = _Variables(task, [], [], [])
    offset = barrier = proto.new_int_var(0, 0 if first else period - 1, "")
    for iteration in task.iterations:
        blocks = [proto.new_int_var(0, 2 * period, "") for _ in task.machines]
        moves = [proto.new_int_var(0, 2 * period, "") for _ in iteration.exchange]
        end = proto.new_int_var(0, 2 * period, "")
        for block, ready, size in zip(blocks, iteration.ready, iteration.sizes, strict=True):
            proto.add(block >= barrier)
            proto.add(end >= block + size)
            for move, after in zip(moves, ready, strict=True):
                # 0 stands for a bucket that the block of this machine does not reach.
                if after:
                    proto.add(move >= block + after)
        for move, following, duration in zip(moves, [*moves[1:], end], iteration.exchange, strict=True):
            proto.add(following >= move + duration)
        job_vars.blocks.append(blocks)
        job_vars.transfers.append(moves)
        job_vars.ends.append(end)
        barrier = end
    # The last barrier wraps: the next period of the job begins a period after its offset.
    proto.add(barrier <= offset + period)
    return job_vars


def _add_disjoint(
    proto: cp_model.CpModel, jobs: Sequence[_Variables], period: int, busy_machines: Busy, busy_links: Busy
) -> None:
    """Keep operations on a machine or link from overlapping each other or what is fixed."""
    users: dict[tuple[str, int], list[User]] = {}
    for j, job_vars in enumerate(jobs):
        for place, machine in enumerate(job_vars.task.machines):
            users.setdefault(("machine", machine), []).append((j, place))
        for link in job_vars.task.links:
            users.setdefault(("link", link), []).append((j, LINKS))

    def intervals(user: User) -> list[cp_model.IntervalVar]:
        """Return the blocks of a machine of a job, or its transfers."""
        job_vars, place = jobs[user[0]], user[1]
        found = []
        for blocks, moves, iteration in zip(job_vars.blocks, job_vars.transfers, job_vars.task.iterations, strict=True):
            block = [(blocks[place], iteration.sizes[place])]
            for start, size in zip(moves, iteration.exchange, strict=True) if place == LINKS else block:
                found += operation_intervals(proto, start, size, period, turns=1) if size else []
        return found

    add_no_overlaps(proto, users, {"machine": busy_machines, "link": busy_links}, intervals, period)
