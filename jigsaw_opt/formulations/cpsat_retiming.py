"""Some placed jobs timed between fixed others modulo a period, as a CP-SAT model; ``docs/search.md`` has its formulas.

What runs a block is a *machine*: all GPUs of a server together, which then have one level. Levels are given, starts are
free, and any solution will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.variables import ModuloAxis
from jigsaw_opt.formulations.cpsat_model import new_model

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Busy = Mapping[int, Sequence[tuple[int, int]]]
"""Disjoint intervals within one period by number of a machine or link."""


@dataclass(frozen=True, slots=True)
class RetimingTask:
    """A placed job.

    `machines`: number of what runs each block. `tables`: duration of a block by machine and level, in microseconds.
    `levels`: ``levels[i][machine]``: level in iteration ``i``. `links`: links of its transfers. `exchange`:
    ``exchange[i][bucket - 1]``: duration of a transfer, in microseconds.
    """

    machines: Sequence[int]
    tables: Sequence[Sequence[int]]
    levels: Sequence[Sequence[int]]
    links: Sequence[int]
    exchange: Sequence[Sequence[int]]

    def sizes(self, place: int) -> list[int]:
        """Return the durations of the blocks of a machine, or with -1 those of the transfers."""
        if place < 0:
            return [duration for row in self.exchange for duration in row]
        return [self.tables[place][row[place] - 1] for row in self.levels]


@dataclass(frozen=True, slots=True)
class RetimedTiming:
    """Starts of each block and of each transfer of one job, in microseconds; the first index is the iteration."""

    blocks: list[list[int]]
    transfers: list[list[int]]


@dataclass(slots=True)
class TaskVariables:
    """The starts of each block and of each transfer of one job; the first index is the iteration."""

    task: RetimingTask
    blocks: list[list[cp_model.IntVar]] = field(default_factory=list)
    transfers: list[list[cp_model.IntVar]] = field(default_factory=list)

    def starts(self, place: int) -> list[cp_model.IntVar]:
        """Return the starts of the blocks of a machine, or with -1 those of the transfers."""
        if place < 0:
            return [start for row in self.transfers for start in row]
        return [row[place] for row in self.blocks]


@dataclass(frozen=True, slots=True)
class CpSatRetiming:
    """Variables and constraints.

    `tasks`: variables, one entry for each job.
    """

    tasks: Sequence[TaskVariables]
    proto: cp_model.CpModel

    def plan(self, value: Callable[[cp_model.IntVar], int]) -> list[RetimedTiming]:
        """Return the timing of each job in a solution, given the value of each variable."""
        return [
            RetimedTiming(
                [[value(start) for start in row] for row in task.blocks],
                [[value(start) for start in row] for row in task.transfers],
            )
            for task in self.tasks
        ]


def build(tasks: Sequence[RetimingTask], period: int, busy_machines: Busy, busy_links: Busy) -> CpSatRetiming:
    """Build the model.

    `period`: length of the period in microseconds. `busy_machines, busy_links`: intervals that others take, by machine
    and by link.
    """
    proto = new_model()
    jobs = [TaskVariables(task) for task in tasks]
    # Where nothing is fixed, the period may be cut anywhere, so one job may begin at 0.
    free = not any(busy_machines.values()) and not any(busy_links.values())
    for number, job_vars in enumerate(jobs):
        _add_job(proto, job_vars, period, anchored=free and number == 0)
    _add_disjoint(proto, jobs, ModuloAxis(period), busy_machines, busy_links)
    return CpSatRetiming(jobs, proto)


def _add_job(model: cp_model.CpModel, job_vars: TaskVariables, period: int, anchored: bool) -> None:
    """Add all iterations of a job (specification: readiness, order, barrier, period)."""
    task = job_vars.task
    # The first iteration begins in the first period, and the wrapped barrier ends the last one at most a period later.
    offset = barrier = model.new_int_var(0, 0 if anchored else period - 1, "")
    for levels, exchange in zip(task.levels, task.exchange, strict=True):
        starts = [model.new_int_var(0, 2 * period, "") for _ in levels]
        moves = [model.new_int_var(0, 2 * period, "") for _ in exchange]
        end = model.new_int_var(0, 2 * period, "")
        for start, level, table in zip(starts, levels, task.tables, strict=True):
            model.add(start >= barrier)
            model.add(end >= start + table[level - 1])
            for move, ready in zip(moves, table[:level], strict=False):
                model.add(move >= start + ready)
        for move, duration, following in zip(moves, exchange, [*moves[1:], end], strict=True):
            model.add(following >= move + duration)
        job_vars.blocks.append(starts)
        job_vars.transfers.append(moves)
        barrier = end
    # The last barrier wraps: the next period of the job begins a period after its offset.
    model.add(barrier <= offset + period)


def _add_disjoint(
    model: cp_model.CpModel, jobs: Sequence[TaskVariables], axis: ModuloAxis, busy_machines: Busy, busy_links: Busy
) -> None:
    """Keep operations on a machine or link from overlapping each other and what is fixed (specification: exclusive)."""
    users: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    for j, job_vars in enumerate(jobs):
        for place, machine in enumerate(job_vars.task.machines):
            users.setdefault((True, machine), []).append((j, place))
        for link in job_vars.task.links:
            users.setdefault((False, link), []).append((j, -1))
    stated = set()
    known: dict[tuple[int, int], list[cp_model.IntervalVar]] = {}
    for (is_machine, number), there in users.items():
        fixed = tuple((busy_machines if is_machine else busy_links).get(number, ()))
        # The operations of one user follow one another already, and resources with the same users and the same fixed
        # intervals need one constraint.
        if (len(there) == 1 and not fixed) or (tuple(there), fixed) in stated:
            continue
        stated.add((tuple(there), fixed))
        for j, place in there:
            if (j, place) not in known:
                known[j, place] = _intervals(model, jobs[j], place, axis)
        own = [one for user in there for one in known[user]]
        others = [
            model.new_fixed_size_interval_var(begin + turn, end - begin, "")
            for turn in (0, axis.limit)
            for begin, end in fixed
        ]
        model.add_no_overlap([*own, *others])


def _intervals(
    model: cp_model.CpModel, job_vars: TaskVariables, place: int, axis: ModuloAxis
) -> list[cp_model.IntervalVar]:
    """Return the intervals of the blocks of a machine, or with -1 those of the transfers."""
    found, always = list["cp_model.IntervalVar"](), model.new_constant(1)
    for start, size in zip(job_vars.starts(place), job_vars.task.sizes(place), strict=True):
        # An operation of no length is in nobody's way, but its interval could not lie within another one.
        if size:
            found += axis.intervals(model, axis.residue(model, 0, start), size, always)
    return found
