"""Jobs on whole servers timed jointly by CP-SAT on the cyclic horizon, each server as if it were one machine."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.formulations import cpsat_cyclic_timing
from jigsaw_opt.problem.calendar import union
from jigsaw_opt.solvers.assignments.assignment import Assignment
from jigsaw_opt.solvers.search.engine import Engine
from jigsaw_opt.solvers.search.problem_data import ProblemData
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule

__all__ = ["jointly_timed"]


def jointly_timed(
    schedule: PartialSchedule, groups: Sequence[Sequence[Assignment]], engine: Engine, work: float
) -> list[list[ScheduledJob] | None]:
    """Return the jobs of each group, timed modulo the period; None for a group for which no timing was found.

    Groups do not see one another, only the partial schedule, which does not change.

    Deep levels are at the fastest GPUs, and where GPUs are alike at the first servers of one job and the last of the
    next; all blocks of a job on a server begin together.

    `work`: limit in the engine's deterministic seconds for each group.
    """
    data = schedule.data
    models: dict[int, cpsat_cyclic_timing.CpSatCyclicTiming] = {}
    levels: dict[int, list[list[list[int]]]] = {}
    for g, assignments in enumerate(groups):
        rows = [_levels(data, assignment, turned=k % 2 == 1) for k, assignment in enumerate(assignments)]
        levels[g] = [row for row in rows if row is not None]
        if len(levels[g]) == len(assignments):
            tasks = [_task(data, assignment, row) for assignment, row in zip(assignments, levels[g], strict=True)]
            models[g] = _model(schedule, tasks)
    found: list[list[ScheduledJob] | None] = [None] * len(groups)
    values = engine.solve_all([model.proto for model in models.values()], work)
    for (g, model), value in zip(models.items(), values, strict=True):
        if value is not None:
            found[g] = [_inserted(data, *each) for each in zip(groups[g], levels[g], model.plan(value), strict=True)]
    return found


def _model(
    schedule: PartialSchedule, tasks: Sequence[cpsat_cyclic_timing.CyclicTask]
) -> cpsat_cyclic_timing.CpSatCyclicTiming:
    assert schedule.period is not None, "the horizon is cyclic"
    machines = {machine for task in tasks for machine in task.machines}
    links = {link for task in tasks for link in task.links}
    inside = schedule.data.layout.on_server
    servers = {s: union([schedule.gpus[gpu] for gpu in inside[s]], schedule.period) for s in machines}
    return cpsat_cyclic_timing.build(
        tasks,
        schedule.period,
        {s: list(zip(calendar.starts, calendar.ends, strict=True)) for s, calendar in servers.items()},
        {k: list(zip(schedule.links[k].starts, schedule.links[k].ends, strict=True)) for k in links},
    )


def _levels(data: ProblemData, assignment: Assignment, turned: bool) -> list[list[int]] | None:
    """Return levels by iteration and slot; None where memory does not admit them so."""
    if assignment.plan.fixed:
        return [list(row) for row in assignment.plan.rows]
    sign, server_of = -1 if turned else 1, data.layout.server_of
    order = sorted(
        range(len(assignment.gpus)),
        key=lambda slot: (assignment.tables[slot][-1], sign * server_of[assignment.gpus[slot]], slot),
    )
    rows = []
    for row in assignment.plan.rows:
        levels = [0] * len(row)
        for slot, level in zip(order, row, strict=True):
            levels[slot] = level
        if assignment.caps is not None and any(level > cap for level, cap in zip(levels, assignment.caps, strict=True)):
            return None
        rows.append(levels)
    return rows


def _task(data: ProblemData, assignment: Assignment, rows: Sequence[Sequence[int]]) -> cpsat_cyclic_timing.CyclicTask:
    slots_of = _slots_of(data, assignment)
    iterations = []
    for row, exchange in zip(rows, assignment.exchange, strict=True):
        ready = [
            [
                max([assignment.tables[slot][bucket] for slot in slots if row[slot] > bucket], default=0)
                for bucket in range(len(exchange))
            ]
            for slots in slots_of.values()
        ]
        sizes = [max(assignment.tables[slot][row[slot] - 1] for slot in slots) for slots in slots_of.values()]
        iterations.append(cpsat_cyclic_timing.CyclicIteration(ready, sizes, exchange))
    return cpsat_cyclic_timing.CyclicTask(list(slots_of), assignment.links, iterations)


def _inserted(
    data: ProblemData, assignment: Assignment, rows: list[list[int]], timing: cpsat_cyclic_timing.CyclicTiming
) -> ScheduledJob:
    place = {server: k for k, server in enumerate(_slots_of(data, assignment))}
    places = [place[data.layout.server_of[gpu]] for gpu in assignment.gpus]
    blocks = [[starts[k] for k in places] for starts in timing.blocks]
    return ScheduledJob(
        assignment.job, assignment, [tuple(row) for row in rows], blocks, timing.transfers, min(blocks[0]), timing.end
    )


def _slots_of(data: ProblemData, assignment: Assignment) -> dict[int, list[int]]:
    """Return the slots of a job by server."""
    found: dict[int, list[int]] = {}
    for slot, gpu in enumerate(assignment.gpus):
        found.setdefault(data.layout.server_of[gpu], []).append(slot)
    return found
