"""All plans of an instance as a CP-SAT model; see ``docs/models.md`` for it in formulas.

Both kinds of job stand on the same GPUs, links and times. Where plans repeat, every data-parallel job keeps a clock of
its own that reads 0 at its *offset*. On that clock it is a job of the finite horizon that must end within the period,
and only GPUs and links see the offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat import reading
from jigsaw_opt.formulations.cpsat.memory import add_memory
from jigsaw_opt.formulations.cpsat.resources import add_blocks_disjoint, add_transfers_disjoint
from jigsaw_opt.formulations.cpsat.symmetry import add_order, ordered_names
from jigsaw_opt.formulations.cpsat.task_graphs import add_task_graph, slots_load
from jigsaw_opt.formulations.cpsat.variables import (
    Axis,
    InstanceVariables,
    JobVariables,
    ModuloAxis,
    TaskGraphVariables,
)
from jigsaw_opt.formulations.cpsat_model import CpSatRows, new_model
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.loads import Load, add_loads
from jigsaw_opt.formulations.timetable.symmetry import identical_jobs
from jigsaw_opt.formulations.timetable.timing import add_job, add_objective
from jigsaw_opt.formulations.timetable.windows import Window, serial_end
from jigsaw_opt.problem.compiled.activities import assemble_task_graphs
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble
from jigsaw_opt.problem.plan import JobPlan

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression

__all__ = ["CpSatModel", "build", "spans_suffice"]


class CpSatModel(InstanceVariables):
    """Variables and constraints of one instance: what turns a solution into a timetable and back."""

    def plan(self, value: reading.Value) -> Timetable:
        """Return the timetable of a solution, given the value of each variable."""
        eligibility = self.eligibility
        jobs = [reading.decision_of(eligibility, job_vars, value) for job_vars in self.jobs]
        graphs = [reading.task_graph_decision(eligibility, job_vars, value) for job_vars in self.graphs]
        return Timetable(
            assemble(eligibility.operations, jobs),
            self.axis.period,
            assemble_task_graphs(eligibility.operations, graphs),
        )

    def hint(self, timetable: Timetable) -> None:
        """Offer a timetable to the engine as its first solution."""
        self.proto.clear_hints()  # type: ignore[no-untyped-call]
        index, plans = self.eligibility.index, self._in_order(timetable.jobs)
        placed = [plan.gpus for plan in plans] + [plan.gpus for plan in timetable.task_graph_jobs]
        gpus = [[index[name] for name in row] for row in placed]
        slots = [{g} for row in gpus[len(plans) :] for g in row]
        twin = ordered_names(self.eligibility, [*map(set, gpus[: len(plans)]), *slots])
        gpus = [[twin[g] for g in row] for row in gpus]
        # `build` puts this moment at residue 0, so all residues are counted from it.
        first = self._first_start(plans, timetable)
        for job_vars, plan, row in zip(self.jobs, plans, gpus, strict=False):
            reading.add_hint(self.proto, job_vars, plan, row, self._zero(plan))
            if not isinstance(job_vars.offset, int):
                self.proto.add_hint(job_vars.offset, self.axis.offset(self._zero(plan), first))
        rest = zip(self.graphs, timetable.task_graph_jobs, gpus[len(plans) :], strict=True)
        for graph_vars, task_graph_plan, row in rest:
            reading.add_task_graph_hint(
                self.proto, graph_vars, task_graph_plan, row, lambda moment: self.axis.offset(moment, first)
            )

    def _zero(self, plan: JobPlan) -> int:
        """Return the moment of a plan at which the clock of a job reads 0."""
        return 0 if self.axis.period is None else plan.start_us

    def _in_order(self, plans: Sequence[JobPlan]) -> list[JobPlan]:
        """Return for each job the plan that it takes where identical ones end in order, on clocks of their own."""
        found = list(plans)
        for group in identical_jobs(self.eligibility.operations):
            own = sorted((plans[k] for k in group), key=lambda plan: plan.end_us - self._zero(plan))
            for j, plan in zip(group, own, strict=True):
                found[j] = plan
        return found

    def _first_start(self, plans: Sequence[JobPlan], timetable: Timetable) -> int:
        """Return the moment of a plan that repeats at which the period begins in the model."""
        if self.graphs:
            return reading.starts_of(self.graphs[0], timetable.task_graph_jobs[0])[0][0]
        return self._zero(plans[0])


def build(operations: Operations, spans: Sequence[Window], bound: int, limit: int) -> CpSatModel:
    """Build the model of an instance.

    Parameters
    ----------
    operations
        The compiled instance.
    spans
        What is known of the times of each data-parallel job where the objective is at most `limit`: on the cyclic
        horizon its window on its own clock.
    bound, limit
        Every plan's objective is at least `bound`, and only plans at most `limit` are of interest. On the cyclic
        horizon the period is `limit`: what is feasible at a period is so at every longer one (specification:
        cyclic-horizon).
    """
    model, eligibility = new_model(), GpuEligibility(operations)
    axis = _axis(operations, limit)
    jobs = [JobVariables(*parts) for parts in zip(range(len(spans)), operations.jobs, spans, strict=True)]
    graphs = [TaskGraphVariables(graph) for graph in operations.task_graphs]
    built = CpSatModel(model, eligibility, jobs, graphs, axis)
    for job, span in zip(operations.jobs, spans, strict=True):
        if span.release + job.iterations * span.iteration > span.deadline or not eligibility.allowed(job):
            # A disjunction of nothing is false: the engine proves that there is no plan.
            model.add_bool_or([])
            return built
    for job_vars in jobs:
        add_job(CpSatRows(model), eligibility, job_vars)
        if axis.period is not None:
            job_vars.offset = axis.clock(model)
            # The barrier wraps (specification: period).
            model.add(job_vars.ends[-1] <= axis.period)
    for graph_vars in graphs:
        add_task_graph(model, eligibility, graph_vars, axis)
    add_memory(built)
    add_blocks_disjoint(built)
    add_transfers_disjoint(built)
    add_order(built)
    if isinstance(axis, ModuloAxis):
        # All jobs together can be moved in time, and then come around.
        model.add((graphs[0].starts[0][0].offset if graphs else jobs[0].offset) == 0)
    if axis.period is None:
        _add_objective(built, bound, limit)
    else:
        _add_loads(built, axis.period)
    return built


def spans_suffice(operations: Operations) -> bool:
    """Return whether a cyclic instance can be stated in absolute times.

    Slots of one job are on different GPUs, so those of a single job share no GPU. Where a barrier keeps each slot
    within one period, its blocks are apart modulo the period where they are apart at all, and so is what they hold.
    Transfers know no barrier, so none may use a link. Slots that share a power cap are not apart by that.
    """
    if len(operations.task_graphs) != 1 or operations.jobs or operations.horizon == "finite":
        return False
    shape, cluster = operations.task_graphs[0].shape, operations.cluster
    return shape.barrier != "none" and not cluster.capacities and not (cluster.links and shape.transfers)


def _axis(operations: Operations, limit: int) -> Axis:
    """Return the times that operations are laid down on."""
    if operations.horizon == "finite":
        # No plan needs times at which nothing runs.
        return Axis(min(limit, serial_end(operations)))
    return Axis(serial_end(operations), limit) if spans_suffice(operations) else ModuloAxis(limit)


def _add_objective(instance_vars: InstanceVariables, bound: int, limit: int) -> None:
    """Minimise the latest end of a job, or the weighted sum of all ends (specification: objective).

    `bound, limit`: the objective lies between them, in microseconds (times weight for the weighted sum).
    """
    model, name = instance_vars.proto, instance_vars.eligibility.operations.objective
    objective = model.new_int_var(bound, limit, name)
    model.minimize(objective)
    add_objective(CpSatRows(model), objective, [*_ends(instance_vars)], name == "weighted_completion")
    if name != "weighted_completion":
        _add_loads(instance_vars, objective)


def _ends(instance_vars: InstanceVariables) -> Iterator[tuple[int, cp_model.IntVar]]:
    """Yield the weight and the end of each job; ends of task-graph jobs are added."""
    model, limit = instance_vars.proto, instance_vars.axis.limit
    yield from ((job_vars.job.weight, job_vars.ends[-1]) for job_vars in instance_vars.jobs)
    for graph_vars in instance_vars.graphs:
        job = graph_vars.graph.job
        end = model.new_int_var(0, limit if job.deadline_us is None else min(limit, job.deadline_us), "")
        for operation in range(graph_vars.graph.size):
            # An operation waits for itself in the iteration before, so the last one ends last.
            model.add(end >= graph_vars.end(job.iterations - 1, operation))
        yield job.weight, end


def _add_loads(instance_vars: InstanceVariables, most: Expression) -> None:
    """Fit the work on each GPU, server and link into the time that there is."""

    eligibility, finite = instance_vars.eligibility, instance_vars.axis.horizon == "finite"

    def slots(g: int) -> Iterator[Load]:
        return (slots_load(graph_vars, g, eligibility.gpu_type(g)) for graph_vars in instance_vars.graphs)

    add_loads(CpSatRows(instance_vars.proto), eligibility, instance_vars.jobs, most, slots, finite)
