"""The finite horizon as a CP-SAT model; see ``docs/models.md`` for it in formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.formulations.cpsat_timetable.placement import add_job, add_memory
from jigsaw_opt.formulations.cpsat_timetable.presence import Presence, add_present_jobs
from jigsaw_opt.formulations.cpsat_timetable.reading import Value, add_hint, decision_of
from jigsaw_opt.formulations.cpsat_timetable.resources import add_blocks_disjoint, add_transfers_disjoint
from jigsaw_opt.formulations.cpsat_timetable.strengthening import add_gpu_loads, add_link_loads, add_server_loads
from jigsaw_opt.formulations.cpsat_timetable.symmetry import add_order, ordered_twin
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.network import RoutedNetwork
from jigsaw_opt.formulations.timetable.windows import (
    Window,
    interval_count,
    readiness_count,
    serial_end,
    serial_limit,
    windows,
)
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = [
    "CpSatTimetable",
    "Window",
    "build",
    "interval_count",
    "readiness_count",
    "serial_end",
    "serial_limit",
    "windows",
]


class CpSatTimetable:
    """Variables and constraints of one instance.

    `network`: the instance, its GPUs and routes. `jobs`: variables, one entry for each job. `presences`: presence of
    each job that memory may keep from being there all the time, by number.
    """

    def __init__(
        self,
        network: RoutedNetwork,
        jobs: Sequence[JobVariables],
        proto: cp_model.CpModel,
        presences: Mapping[int, Presence] = MappingProxyType({}),
    ) -> None:
        self.network, self.jobs, self.proto, self.presences = network, tuple(jobs), proto, presences

    def plan(self, value: Value) -> Timetable:
        """Return the timetable of a solution, given the value of each variable."""
        eligibility = self.network.eligibility
        return Timetable(
            assemble(eligibility.operations, [decision_of(eligibility, job_vars, value) for job_vars in self.jobs])
        )

    def hint(self, timetable: Timetable) -> None:
        """Offer a timetable to the engine as its first solution."""
        self.proto.clear_hints()  # type: ignore[no-untyped-call]
        for job_vars, (plan, gpus) in zip(self.jobs, ordered_twin(self.network, timetable), strict=True):
            add_hint(self.proto, job_vars, plan, gpus)
            if job_vars.number in self.presences:
                self.presences[job_vars.number].hint(self.proto, plan)


def build(operations: Operations, spans: Sequence[Window], bound: int, limit: int) -> CpSatTimetable:
    """Build the model of a finite instance.

    Parameters
    ----------
    operations
        The compiled instance.
    spans
        What is known of the times of each job where the objective is at most `limit`.
    bound, limit
        Every plan's objective is at least `bound`, and only plans at most `limit` are of interest.
    """
    proto, eligibility = new_model(), GpuEligibility(operations)
    network = RoutedNetwork(eligibility)
    jobs = [JobVariables(*parts) for parts in zip(range(len(spans)), operations.jobs, spans, strict=True)]
    if not all(eligibility.allowed(job) for job in operations.jobs):
        # A disjunction of nothing is false: the engine proves that there is no plan.
        proto.add_bool_or([])
        return CpSatTimetable(network, jobs, proto)
    channels = [add_job(proto, network, job_vars) for job_vars in jobs]
    presences = {}
    if operations.has_scarce_memory:
        presences = add_present_jobs(proto, eligibility, jobs)
    else:
        add_memory(proto, eligibility, jobs)
    add_blocks_disjoint(proto, eligibility, jobs)
    add_transfers_disjoint(proto, jobs, channels)
    add_order(proto, network, jobs)
    _add_objective(proto, eligibility, jobs, bound, limit)
    return CpSatTimetable(network, jobs, proto, presences)


def _add_objective(
    proto: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], bound: int, limit: int
) -> None:
    """Minimise the latest end of a job, or the weighted sum of all ends (specification: objective)."""
    objective = proto.new_int_var(bound, limit, eligibility.operations.objective)
    proto.minimize(objective)
    if eligibility.operations.objective == "weighted_completion":
        proto.add(objective == sum(job_vars.job.weight * job_vars.ends[-1] for job_vars in jobs))
        return
    for job_vars in jobs:
        proto.add(objective >= job_vars.ends[-1])
    add_gpu_loads(proto, eligibility, jobs, objective)
    add_server_loads(proto, eligibility, jobs, objective)
    add_link_loads(proto, eligibility, jobs, objective)
