"""Inequalities that every plan meets, for the linear relaxation: the load of each GPU and of each link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import Load, gpu_load, link_load, load_rows

if TYPE_CHECKING:
    import pulp

__all__ = ["add_gpu_loads", "add_link_loads"]


def add_gpu_loads(
    model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], makespan: pulp.LpVariable
) -> None:
    """Fit the work on each GPU between the first release and the last exchange.

    `model`: the program, which receives columns and rows.
    """
    for g in range(len(eligibility.gpus)):
        loads = [gpu_load(eligibility, job_vars, g, model.total) for job_vars in jobs if g in job_vars.assigned]
        _add_loads(model, f"gpu_load_{g}", loads, makespan)


def add_link_loads(
    model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], makespan: pulp.LpVariable
) -> None:
    """Fit the transfers over each link between the first readiness and the end; none is faster than the link.

    `model`: the program, which receives columns and rows.
    """
    for k, link in enumerate(eligibility.operations.cluster.links):
        loads = [link_load(eligibility, job_vars, job_vars.links[k], link) for job_vars in jobs if k in job_vars.links]
        _add_loads(model, f"link_load_{k}", loads, makespan)


def _add_loads(model: AlgebraicModel, name: str, loads: Sequence[Load], makespan: pulp.LpVariable) -> None:
    """Fit the loads of jobs that may run one after the other before the end."""
    for n, (works, around) in enumerate(load_rows(loads)):
        model.add(model.total(works) + around <= makespan, f"{name}_{n}")
