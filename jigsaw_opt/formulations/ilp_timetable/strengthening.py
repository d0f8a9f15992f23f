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
    """Work on a GPU fits between the first release and the last exchange."""
    for g in range(len(eligibility.gpus)):
        loads = [gpu_load(eligibility, it, g, model.total) for it in jobs if g in it.here]
        _add_loads(model, f"gpu_load_{g}", loads, makespan)


def add_link_loads(
    model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], makespan: pulp.LpVariable
) -> None:
    """Transfers over a link fit between the first readiness and the end; over it, none is faster than the link."""
    for k, link in enumerate(eligibility.operations.cluster.links):
        loads = [link_load(eligibility, it, it.links[k], link) for it in jobs if k in it.links]
        _add_loads(model, f"link_load_{k}", loads, makespan)


def _add_loads(model: AlgebraicModel, name: str, loads: Sequence[Load], makespan: pulp.LpVariable) -> None:
    """The loads of jobs that may run one after the other all fit before the end."""
    for n, (works, around) in enumerate(load_rows(loads)):
        model.add(model.total(works) + around <= makespan, f"{name}_{n}")
