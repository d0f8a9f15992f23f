"""Constraints on starts: edges, barriers, and exclusive GPUs and links (specification: edges-and-barrier)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_activities.variables import Gpus, ModuloAxis, TaskGraphVariables, TimeAxis
from jigsaw_opt.formulations.cpsat_activities.workers import WorkerJobs
from jigsaw_opt.formulations.cpsat_limits import PowerUse

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_activities.variables import Expression


def add_starts(model: cp_model.CpModel, job_vars: TaskGraphVariables, axis: TimeAxis) -> None:
    """Add a start for every operation of every iteration, not before the release.

    `job_vars`: variables of the job; `job_vars.starts` is filled in, by iteration and operation.
    """
    # A start waits for a chain of others, and each of these adds less than two periods.
    most = 2 * job_vars.graph.size * job_vars.graph.job.iterations
    for _ in range(job_vars.graph.job.iterations):
        job_vars.starts.append(
            [axis.start(model, job_vars.graph.job.release_us, most) for _ in range(job_vars.graph.size)]
        )


def add_waits(model: cp_model.CpModel, job_vars: TaskGraphVariables, axis: TimeAxis) -> None:
    """Require that operations keep to edges and barriers (specification: edges-and-barrier)."""
    graph = job_vars.graph
    most = 2 * graph.size * graph.job.iterations
    rows = [
        [*starts, *(axis.start(model, graph.job.release_us, most) for _ in range(graph.milestones))]
        for starts in job_vars.starts
    ]
    sizes = [*job_vars.size, *(0 for _ in range(graph.milestones))]
    for (first, before), (later, after), periods in graph.precedences(axis.horizon):
        one, other = rows[first][before], rows[later][after]
        model.add(other.start + axis.later(periods) >= one.start + sizes[before])
        if isinstance(axis, ModuloAxis) and one is not other:
            # It follows, for residues are less than a period; the engine's relaxation gains by it.
            model.add(other.turns + periods >= one.turns)


def add_blocks_disjoint(
    model: cp_model.CpModel, gpus: Gpus, jobs: Sequence[TaskGraphVariables], axis: TimeAxis, workers: WorkerJobs
) -> None:
    """Require that blocks on a GPU do not overlap and keep to the power caps (specification: exclusive, power)."""
    power = PowerUse(gpus.cluster)
    for g in range(len(gpus.all)):
        intervals = workers.blocks(g, power)
        for job_vars in jobs:
            for slot, blocks in enumerate(job_vars.graph.blocks_of):
                if g in job_vars.at[slot]:
                    for row in job_vars.starts:
                        for block in blocks:
                            size, literal = job_vars.size[block], job_vars.at[slot][g]
                            own = axis.intervals(model, row[block].offset, size, literal)
                            watts = job_vars.graph.shape.blocks[block].power_w or {}
                            power.add(gpus.all[g][0], own, watts.get(gpus.gpu_type(g), 0))
                            intervals += own
        model.add_no_overlap(intervals)
    power.close(model)


def add_transfers_disjoint(
    model: cp_model.CpModel, jobs: Sequence[TaskGraphVariables], axis: TimeAxis, workers: WorkerJobs
) -> None:
    """Require that transfers over a link do not overlap (specification: exclusive)."""
    on_link = workers.transfers()
    for job_vars in jobs:
        for (operation, link), literal in job_vars.links.items():
            for row in job_vars.starts:
                taken = axis.intervals(model, row[operation].offset, job_vars.size[operation], literal)
                on_link.setdefault(link, []).extend(taken)
    for intervals in on_link.values():
        model.add_no_overlap(intervals)


def load_of(gpus: Gpus, jobs: Sequence[TaskGraphVariables], g: int, workers: WorkerJobs) -> Expression:
    """Return the least work of a GPU in all iterations, by the slots and workers that it holds.

    Linear expression in microseconds.
    """
    total = workers.load(g)
    for job_vars in jobs:
        for slot, blocks in enumerate(job_vars.graph.blocks_of):
            if g in job_vars.at[slot]:
                tables = (job_vars.graph.shape.blocks[block].duration_us for block in blocks)
                work = job_vars.graph.job.iterations * sum(table[gpus.gpu_type(g)] for table in tables)
                total = total + work * job_vars.at[slot][g]
    return total
