"""Inequalities that every plan meets: the load of each GPU, link and server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import Load, gpu_load, link_load, load_rows, server_load

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def add_gpu_loads(
    model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], makespan: cp_model.IntVar
) -> None:
    """Fit the work on each GPU between the first release and the last exchange."""
    for g in range(len(eligibility.gpus)):
        _add_loads(
            model, [gpu_load(eligibility, job_vars, g, sum) for job_vars in jobs if g in job_vars.assigned], makespan
        )


def add_server_loads(
    model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], makespan: cp_model.IntVar
) -> None:
    """Fit the work of jobs that sit on one server only onto its GPUs, as if spread evenly.

    Once every worker has its GPU, the rows of the GPUs say no less; these say which jobs fit onto a server before
    that.
    """
    for loads in _server_loads(eligibility, jobs):
        _add_loads(model, loads, makespan)


def _server_loads(eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> Iterator[list[Load]]:
    # Of a job that may sit on several servers, nobody knows how much of its work is on this one.
    inside = [job_vars for job_vars in jobs if job_vars.on_one_server(eligibility)]
    for s in range(len(eligibility.by_server)):
        yield [server_load(eligibility, job_vars, s) for job_vars in inside if s in job_vars.used]


def add_link_loads(
    model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], makespan: cp_model.IntVar
) -> None:
    """Fit the transfers over each link between the first readiness and the end; none is faster than the link."""
    for k, link in enumerate(eligibility.operations.cluster.links):
        _add_loads(
            model,
            [link_load(eligibility, job_vars, job_vars.links[k], link) for job_vars in jobs if k in job_vars.links],
            makespan,
        )


def _add_loads(model: cp_model.CpModel, loads: Sequence[Load], makespan: cp_model.IntVar) -> None:
    """Fit the loads of jobs that may run one after the other before the end."""
    for works, around in load_rows(loads):
        model.add(sum(works) + around <= makespan)


def add_loads_of_period(
    model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], period: cp_model.IntVar
) -> None:
    """Fit the work on each GPU and server and the transfers over each link into one period of a plan that repeats."""
    for g in range(len(eligibility.gpus)):
        model.add(
            sum(gpu_load(eligibility, job_vars, g, sum).work for job_vars in jobs if g in job_vars.assigned) <= period
        )
    for loads in _server_loads(eligibility, jobs):
        model.add(sum(load.work for load in loads) <= period)
    for k, link in enumerate(eligibility.operations.cluster.links):
        model.add(
            sum(
                link_load(eligibility, job_vars, job_vars.links[k], link).work
                for job_vars in jobs
                if k in job_vars.links
            )
            <= period
        )
