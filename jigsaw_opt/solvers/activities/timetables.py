"""From starts by activity to a timetable, and back."""

from __future__ import annotations

from collections.abc import Sequence

from jigsaw_opt.problem.compiled.activities import ActivityNetwork, TaskGraphDecision, assemble_task_graphs
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, Timetable, assemble
from jigsaw_opt.solvers.activities.flat import JobLevels, network_of


def timetable_of(
    operations: Operations,
    begins: Sequence[int],
    gpus: Sequence[Sequence[Gpu]],
    starts: Sequence[int],
    period: int | None,
    levels: Sequence[JobLevels] = (),
) -> Timetable:
    """Return the timetable of starts.

    `begins`: by job, data-parallel ones first, how many activities there are before it. `gpus`: by job, the GPU of each
    worker or slot. `period`: in microseconds; None on the finite horizon.
    """
    count, jobs = len(operations.jobs), []
    for job, begin, own, rows in zip(operations.jobs, begins[:count], gpus[:count], levels, strict=True):
        size = len(job.blocks) + len(job.transfers)
        places = range(begin, begin + job.iterations * size, size)
        blocks = [starts[at : at + len(job.blocks)] for at in places]
        transfers = [starts[at + len(job.blocks) : at + size] for at in places]
        jobs.append(JobDecision(own, rows, blocks, transfers))
    decisions = []
    for begin, graph, own in zip(begins[count:], operations.task_graphs, gpus[count:], strict=True):
        places = range(begin, begin + graph.job.iterations * graph.size, graph.size)
        decisions.append(TaskGraphDecision(own, [starts[at : at + graph.size] for at in places]))
    return Timetable(assemble(operations, jobs), period, assemble_task_graphs(operations, decisions))


def starts_of(timetable: Timetable) -> list[int]:
    """Return the starts by activity of a timetable, in microseconds."""
    return [operation.start_us for plan in timetable.plans for operation in plan.operations]


def levels_of(timetable: Timetable) -> list[JobLevels]:
    """Return the levels of the data-parallel jobs of a timetable."""
    return [plan.levels for plan in timetable.jobs]


def gpus_of(operations: Operations, timetable: Timetable) -> list[list[Gpu]]:
    """Return, by job, the GPU of each worker or slot."""
    # Compiling leaves a huge server fewer GPUs than a plan may use.
    place_of = operations.instance.cluster.gpus.place_of
    return [[place_of[name] for name in plan.gpus] for plan in timetable.plans]


def planned_network(operations: Operations, timetable: Timetable, within_slots: bool = False) -> ActivityNetwork:
    """Return the activity network of a timetable, which has its jobs in the order of `Timetable.plans`."""
    return network_of(operations, gpus_of(operations, timetable), levels_of(timetable), within_slots)
