"""Inequalities that every plan meets: the load of each GPU, server and link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.axis import Axis
from jigsaw_opt.formulations.cpsat.variables import JobVariables, TaskGraphVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import Load, gpu_load, link_load, load_rows, server_load

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression


def add_loads(
    model: cp_model.CpModel,
    eligibility: GpuEligibility,
    jobs: Sequence[JobVariables],
    graphs: Sequence[TaskGraphVariables],
    axis: Axis,
    most: Expression,
) -> None:
    """Fit the work on each GPU, server and link into the time that there is.

    Of a server, that is the work of jobs that sit on one server only, as if spread evenly over its GPUs. Once every
    worker has its GPU, the rows of the GPUs say no less; these say which jobs fit onto a server before that. No
    transfer is faster than the link.

    `most`: the makespan, within which work stands between the first release and the last exchange, or the period.
    """
    for g in range(len(eligibility.gpus)):
        workers = [gpu_load(eligibility, job_vars, g, sum) for job_vars in jobs if g in job_vars.assigned]
        gpu_type = eligibility.gpu_type(g)
        _fit(model, axis, [*workers, *(_slots_load(own, g, gpu_type) for own in graphs)], most)
    # Of a job that may sit on several servers, nobody knows how much of its work is on this one.
    inside = [job_vars for job_vars in jobs if job_vars.on_one_server(eligibility)]
    for s in range(len(eligibility.by_server)):
        _fit(model, axis, [server_load(eligibility, job_vars, s) for job_vars in inside if s in job_vars.used], most)
    for k, link in enumerate(eligibility.operations.cluster.links):
        users = [(job_vars, job_vars.links[k]) for job_vars in jobs if k in job_vars.links]
        _fit(model, axis, [link_load(eligibility, *user, link) for user in users], most)


def _slots_load(graph_vars: TaskGraphVariables, g: int, gpu_type: str) -> Load:
    """Return the least load of a task-graph job on a GPU, by the slots that it holds."""
    graph, work = graph_vars.graph, []
    for at, blocks in zip(graph_vars.at, graph.blocks_of, strict=True):
        if g in at:
            times = (graph.shape.blocks[block].duration_us[gpu_type] for block in blocks)
            work.append(graph.job.iterations * sum(times) * at[g])
    return Load(graph.job.release_us, sum(work), 0, graph.job.release_us)


def _fit(model: cp_model.CpModel, axis: Axis, loads: Sequence[Load], most: Expression) -> None:
    """Fit the loads of jobs that run one after the other; on the finite horizon with what stands around them."""
    rows = load_rows(loads) if axis.horizon == "finite" else [([load.work for load in loads], 0)]
    for works, around in rows:
        model.add(sum(works) + around <= most)
