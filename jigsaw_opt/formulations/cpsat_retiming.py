"""Some placed jobs timed anew between fixed others, as a CP-SAT model; see ``docs/search.md`` for it in formulas.

What runs a block is a *machine*: a GPU, or all GPUs of a server together, which then have one level. Levels are free
within the depth rule, or fixed; starts are free. On the finite horizon the latest end or the weighted sum of all ends
is least; on the cyclic horizon the period is given and any solution will do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.axis import Axis, ModuloAxis
from jigsaw_opt.formulations.cpsat.levels import (
    add_bucket_ready,
    add_depth_rule,
    block_size,
    level_literals,
)
from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import candidate_levels, fewest_contributors
from jigsaw_opt.problem.compiled.operations import OperationGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression

Busy = Mapping[int, Sequence[tuple[int, int]]]
"""Disjoint intervals by number of a machine or link; on the cyclic horizon within one period."""


@dataclass(frozen=True, slots=True)
class RetimingTask:
    """A placed job.

    `machines`: number of what runs each block. `tables`: duration of a block by machine and level, in microseconds.
    `levels`: ``levels[i][machine]``: levels that are allowed in iteration ``i``. `links`: links of its transfers.
    `exchange`: ``exchange[i][bucket - 1]``: duration of a transfer, in microseconds, by number of contributors from the
    fewest on; one where it is known. `deadline`: it ends no later; on the cyclic horizon its span is at most this.
    """

    job: OperationGraph
    machines: Sequence[int]
    tables: Sequence[Sequence[int]]
    levels: Sequence[Sequence[Sequence[int]]]
    links: Sequence[int]
    exchange: Sequence[Sequence[Sequence[int]]]
    deadline: int


def free_task(
    job: OperationGraph,
    gpus: Sequence[int],
    tables: Sequence[Sequence[int]],
    channel: Channel,
    caps: Sequence[int],
    deadline: int,
) -> RetimingTask:
    """Return a job that may choose its levels anew.

    `gpus`: GPU of each slot, by number. `tables`: duration of a block by slot and level, in microseconds. `channel`:
    links, rate and latency of its transfers. `caps`: deepest level of each slot that memory admits. `deadline`: it ends
    no later, in microseconds; on the cyclic horizon its span is at most this.
    """
    levels = [[d for d in candidate_levels(job) if d <= cap] for cap in caps]
    exchange = []
    for operation in job.transfers:
        fewest = fewest_contributors(job, operation.bucket)
        most = fewest if job.rule.multiset is not None else job.slots
        exchange.append([job.transfer_us(operation.bucket, n, channel) for n in range(fewest, most + 1)])
    count = job.iterations
    return RetimingTask(job, gpus, tables, [levels] * count, channel.links, [exchange] * count, deadline)


@dataclass(frozen=True, slots=True)
class Frame:
    """The horizon and the objective, which all jobs share.

    `period`: length of the period in microseconds, or None on the finite horizon. `weighted`: whether the weighted sum
    of all ends is minimised on the finite horizon; else the latest end is. `bound, limit`: least and largest value of
    interest of that objective; not used on the cyclic horizon.
    """

    period: int | None = None
    weighted: bool = False
    bound: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class RetimedTiming:
    """Levels and starts of one job.

    `levels, blocks, transfers`: level and start of each block, and start of each transfer, in microseconds; the first
    index is the iteration.
    """

    levels: list[tuple[int, ...]]
    blocks: list[list[int]]
    transfers: list[list[int]]


@dataclass(slots=True)
class TaskVariables:
    """Variables of one job by iteration.

    `levels`: ``levels[i][machine][d]``: the block is at level ``d``. `starts, sizes`: of each block. `moves,
    durations`: of each transfer. `ends`: the barriers.
    """

    task: RetimingTask
    levels: list[dict[int, dict[int, cp_model.IntVar]]] = field(default_factory=list)
    starts: list[list[cp_model.IntVar]] = field(default_factory=list)
    sizes: list[list[Expression]] = field(default_factory=list)
    moves: list[list[cp_model.IntVar]] = field(default_factory=list)
    durations: list[list[Expression]] = field(default_factory=list)
    ends: list[cp_model.IntVar] = field(default_factory=list)


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
                [tuple(next(d for d, x in own.items() if value(x)) for own in row.values()) for row in task.levels],
                [[value(start) for start in row] for row in task.starts],
                [[value(start) for start in row] for row in task.moves],
            )
            for task in self.tasks
        ]

    def hint(self, timings: Sequence[RetimedTiming]) -> None:
        """Offer a timing to the engine as its first solution."""
        for job_vars, timing in zip(self.tasks, timings, strict=True):
            for rows, values in ((job_vars.starts, timing.blocks), (job_vars.moves, timing.transfers)):
                for variables, starts in zip(rows, values, strict=True):
                    for variable, start in zip(variables, starts, strict=True):
                        self.proto.add_hint(variable, start)
            for literals_of, levels in zip(job_vars.levels, timing.levels, strict=True):
                for literals, level in zip(literals_of.values(), levels, strict=True):
                    # A single level is no choice, and its literal is fixed already.
                    for d, literal in literals.items() if len(literals) > 1 else ():
                        self.proto.add_hint(literal, d == level)


def build(tasks: Sequence[RetimingTask], frame: Frame, busy_machines: Busy, busy_links: Busy) -> CpSatRetiming:
    """Build the model.

    `busy_machines, busy_links`: intervals that others take, by machine and by link.
    """
    proto = new_model()
    jobs = [TaskVariables(task) for task in tasks]
    axis = Axis(max(task.deadline for task in tasks)) if frame.period is None else ModuloAxis(frame.period)
    # Where nothing is fixed, the period may be cut anywhere, so one job may begin at 0.
    free = not any(busy_machines.values()) and not any(busy_links.values())
    for number, job_vars in enumerate(jobs):
        _add_job(proto, job_vars, frame.period, anchored=free and number == 0)
    _add_disjoint(proto, jobs, axis, busy_machines, busy_links)
    if frame.period is None:
        _add_objective(proto, jobs, frame)
    return CpSatRetiming(jobs, proto)


def _add_job(model: cp_model.CpModel, job_vars: TaskVariables, period: int | None, anchored: bool) -> None:
    """Add levels and all iterations of a job (specification: depth-rules, readiness, order, barrier, period)."""
    task, one = job_vars.task, model.new_constant(1)
    job_vars.levels += [
        {place: level_literals(model, levels, one) for place, levels in enumerate(row)} for row in task.levels
    ]
    if any(len(levels) > 1 for row in task.levels for levels in row):
        add_depth_rule(model, task.job, job_vars.levels)
    earliest, latest, barrier = task.job.release_us, task.deadline, None
    if period is not None:
        # The first iteration begins in the first period, and the wrapped barrier ends the last one at most a period
        # later.
        earliest, latest, barrier = 0, 2 * period, model.new_int_var(0, 0 if anchored else period - 1, "")
    offset = barrier
    for row, exchange in zip(job_vars.levels, task.exchange, strict=True):
        starts = [model.new_int_var(earliest, latest, "") for _ in row]
        moves = [model.new_int_var(earliest, latest, "") for _ in exchange]
        end = model.new_int_var(earliest, latest, "")
        sizes = [block_size(model, table, own) for table, own in zip(task.tables, row.values(), strict=True)]
        durations = [_duration(model, [*row.values()], *each) for each in enumerate(exchange, 1)]
        for start, size, table, literals in zip(starts, sizes, task.tables, row.values(), strict=True):
            if barrier is not None:
                model.add(start >= barrier)
            model.add(end >= start + size)
            for b, move in enumerate(moves, 1):
                add_bucket_ready(model, move, start, table[b - 1], b, literals)
        for b, (move, duration) in enumerate(zip(moves, durations, strict=True), 1):
            # Buckets count from 1 and transfers from 0, so `b` is the transfer behind this one.
            model.add((moves[b] if b < len(moves) else end) >= move + duration)
        job_vars.starts.append(starts)
        job_vars.sizes.append(sizes)
        job_vars.moves.append(moves)
        job_vars.durations.append(durations)
        job_vars.ends.append(end)
        barrier = end
    if offset is not None:
        # The last barrier wraps: the next period of the job begins a period after its offset.
        model.add(job_vars.ends[-1] <= offset + task.deadline)


def _duration(
    model: cp_model.CpModel, row: Collection[Mapping[int, cp_model.IntVar]], bucket: int, times: Sequence[int]
) -> Expression:
    """Return the duration of a transfer, under a free rule by the number of its contributors."""
    if len(set(times)) == 1:
        # A constant, so that one of length 0 is known to take no link.
        return times[0]
    more = model.new_int_var(0, len(times) - 1, "")
    reached = sum(literal for literals in row for d, literal in literals.items() if d >= bucket)
    # The last of the times is that of all slots.
    model.add(more == reached - (len(row) - len(times) + 1))
    duration = model.new_int_var(min(times), max(times), "")
    model.add_element(more, times, duration)
    return duration


def _add_objective(proto: cp_model.CpModel, jobs: Sequence[TaskVariables], frame: Frame) -> None:
    """Minimise the latest end of a job, or the weighted sum of all ends (specification: objective)."""
    objective = proto.new_int_var(frame.bound, frame.limit, "objective")
    proto.minimize(objective)
    if frame.weighted:
        proto.add(objective == sum(job_vars.task.job.weight * job_vars.ends[-1] for job_vars in jobs))
        return
    for job_vars in jobs:
        proto.add(objective >= job_vars.ends[-1])


def _add_disjoint(
    model: cp_model.CpModel, jobs: Sequence[TaskVariables], axis: Axis, busy_machines: Busy, busy_links: Busy
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
        turns = sorted({0, axis.span - axis.limit})
        others = [
            model.new_fixed_size_interval_var(begin + turn, end - begin, "") for turn in turns for begin, end in fixed
        ]
        model.add_no_overlap([*own, *others])


def _intervals(model: cp_model.CpModel, job_vars: TaskVariables, place: int, axis: Axis) -> list[cp_model.IntervalVar]:
    """Return the intervals of the blocks of a machine, or with -1 those of the transfers."""
    if place < 0:
        rows = zip(job_vars.moves, job_vars.durations, strict=True)
        operations = [operation for row in rows for operation in zip(*row, strict=True)]
    else:
        operations = [(row[place], sizes[place]) for row, sizes in zip(job_vars.starts, job_vars.sizes, strict=True)]
    found, always = list["cp_model.IntervalVar"](), model.new_constant(1)
    for start, size in operations:
        # An operation of no length is in nobody's way, but its interval could not lie within another one.
        if not (isinstance(size, int) and size == 0):
            # An operation starts less than two periods after 0, or at their end where it takes no time.
            residue = axis.residue(model, 0, start, most=1 if isinstance(size, int) else 2)
            found += axis.intervals(model, residue, size, always)
    return found
