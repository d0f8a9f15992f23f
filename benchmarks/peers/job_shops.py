"""Job shops as JSPLIB states them, put straight to CP-SAT and to PyJobShop: a machine is the GPU of a slot."""

from __future__ import annotations

from itertools import count, pairwise

import cpsat_run
from attempt import Attempt

from jigsaw_opt.documents.job_shops import jsplib_text
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.compiled.activities import TaskGraphDecision, assemble_task_graphs
from jigsaw_opt.problem.compiled.timetable import Timetable

Row = list[tuple[int, int, int]]
"""The operations of a job in their order: number of the block, machine, time."""


def unsupported(instance: Instance) -> str | None:
    """What is no job shop."""
    try:
        jsplib_text(instance)
    except InvalidInputError:
        return "no job shop"
    return None


def rows_of(attempt: Attempt) -> list[Row]:
    """The jobs of the shop, in the order of their first blocks."""
    (graph,) = attempt.operations.task_graphs
    after = {before: later for before, later, lag in graph.edges if lag == 0}
    rows = []
    for first in sorted(set(range(graph.blocks)) - set(after.values())):
        order = [first]
        while order[-1] in after:
            order.append(after[order[-1]])
        blocks = [graph.shape.blocks[block] for block in order]
        times = [min(block.duration_us.values()) for block in blocks]
        rows.append([(n, graph.takes_part[n][0], time) for n, time in zip(order, times, strict=True)])
    return rows


def timetable(attempt: Attempt, starts: dict[int, int]) -> Timetable:
    """The timetable of starts by block, with each slot on the GPU of its number."""
    (graph,) = attempt.operations.task_graphs
    gpus = [(0, slot) for slot in range(len(graph.shape.slots))]
    decision = TaskGraphDecision(gpus, [[starts[block] for block in range(graph.blocks)]])
    return Timetable((), None, assemble_task_graphs(attempt.operations, [decision]))


def solve_plainly(attempt: Attempt) -> None:
    """An interval for each operation, no overlap on a machine, and nothing else."""
    from ortools.sat.python import cp_model

    rows, model = rows_of(attempt), cp_model.CpModel()
    horizon = sum(time for row in rows for _, _, time in row)
    starts = {block: model.new_int_var(0, horizon, "") for row in rows for block, _, _ in row}
    makespan, on = model.new_int_var(0, horizon, ""), dict[int, list[cp_model.IntervalVar]]()
    for row in rows:
        for block, machine, time in row:
            on.setdefault(machine, []).append(model.new_fixed_size_interval_var(starts[block], time, ""))
        for (before, _, time), (later, _, _) in pairwise(row):
            model.add(starts[later] >= starts[before] + time)
        model.add(makespan >= starts[row[-1][0]] + row[-1][2])
    for intervals in on.values():
        model.add_no_overlap(intervals)
    model.minimize(makespan)
    cpsat_run.run(
        model, attempt, lambda value: timetable(attempt, {block: value(start) for block, start in starts.items()})
    )


def solve_by_pyjobshop(attempt: Attempt) -> None:
    """A task for each operation, with one mode."""
    from pyjobshop import Model
    from pyjobshop.solvers.ortools import CPModel

    rows, model = rows_of(attempt), Model()
    machines = [model.add_machine() for _ in attempt.operations.task_graphs[0].shape.slots]
    places: dict[int, int] = {}
    numbers = count()
    for row in rows:
        job = model.add_job()
        tasks = []
        for block, machine, time in row:
            places[block] = next(numbers)
            tasks.append(model.add_task(job))
            model.add_mode(tasks[-1], [machines[machine]], time)
        for before, later in pairwise(tasks):
            model.add_end_before_start(before, later)
    built = CPModel(model.data())
    variables = built.variables.task_vars
    cpsat_run.run(
        built.model,
        attempt,
        lambda value: timetable(attempt, {block: value(variables[place].start) for block, place in places.items()}),
    )
