"""Task-graph jobs, also beside data-parallel ones, as a CP-SAT model; ``docs/models.md`` has it in formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_activities.holds import add_memory
from jigsaw_opt.formulations.cpsat_activities.placement import add_order_of_gpus, add_placement, add_sizes
from jigsaw_opt.formulations.cpsat_activities.serial import serial_limit
from jigsaw_opt.formulations.cpsat_activities.symmetry import add_order_of_parts, sorted_starts
from jigsaw_opt.formulations.cpsat_activities.timing import (
    add_blocks_disjoint,
    add_starts,
    add_transfers_disjoint,
    add_waits,
    load_of,
)
from jigsaw_opt.formulations.cpsat_activities.variables import Gpus, ModuloAxis, SpanAxis, TaskGraphVariables, TimeAxis
from jigsaw_opt.formulations.cpsat_activities.workers import WorkerJobs
from jigsaw_opt.formulations.cpsat_model import new_model
from jigsaw_opt.formulations.timetable import windows
from jigsaw_opt.problem.compiled.activities import TaskGraphDecision, assemble_task_graphs
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble
from jigsaw_opt.problem.plan import TaskGraphJobPlan

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CpSatActivities", "build", "channel_count", "interval_count", "spans_suffice"]


class CpSatActivities:
    """Variables and constraints of one instance with task-graph jobs.

    `axis`: the times that operations are laid down on.
    """

    def __init__(
        self,
        operations: Operations,
        gpus: Gpus,
        jobs: Sequence[TaskGraphVariables],
        workers: WorkerJobs,
        axis: TimeAxis,
        proto: cp_model.CpModel,
    ) -> None:
        self.operations, self.gpus, self.jobs, self.workers = operations, gpus, tuple(jobs), workers
        self.axis, self.proto = axis, proto

    def plan(self, value: Callable[[cp_model.IntVar], int]) -> Timetable:
        """Return the timetable of a solution, given the value of each variable."""
        decisions = []
        for job_vars in self.jobs:
            held = [next(g for g, literal in at.items() if value(literal)) for at in job_vars.at]
            # Starts are sums of variables, which an engine and its callback evaluate as well.
            starts = [[value(start.start) for start in row] for row in job_vars.starts]  # type: ignore[arg-type]
            decisions.append(TaskGraphDecision([self.gpus.all[g] for g in held], starts))
        period = None
        if isinstance(self.axis, ModuloAxis):
            period = self.axis.limit
        elif isinstance(self.axis, SpanAxis):
            period = value(self.axis.period)
        jobs = assemble(self.operations, self.workers.decisions(value))
        return Timetable(jobs, period, assemble_task_graphs(self.operations, decisions))

    def hint(self, timetable: Timetable) -> None:
        """Offer a timetable to the engine as its first solution."""
        self.proto.clear_hints()  # type: ignore[no-untyped-call]
        number = {self.operations.cluster.gpu_name(*gpu): g for g, gpu in enumerate(self.gpus.all)}
        moments = [
            _sorted_starts_of(job_vars, plan)
            for job_vars, plan in zip(self.jobs, timetable.task_graph_jobs, strict=True)
        ]
        # `build` puts this operation at residue 0, so all residues are counted from it.
        first = moments[0][0][0]
        self.workers.hint(timetable, first)
        for job_vars, plan, own in zip(self.jobs, timetable.task_graph_jobs, moments, strict=True):
            for at, name in zip(job_vars.at, plan.gpus, strict=True):
                for g, literal in at.items():
                    self.proto.add_hint(literal, g == number[name])
            for row, starts in zip(job_vars.starts, own, strict=True):
                for start, moment in zip(row, starts, strict=True):
                    self.proto.add_hint(start.offset, self.axis.offset(moment, first))
            if job_vars.presence is not None:
                job_vars.presence.hint(self.proto, plan)


def _sorted_starts_of(job_vars: TaskGraphVariables, plan: TaskGraphJobPlan) -> list[list[int]]:
    """Return the starts of a plan by iteration and operation, in the order that the model asks for."""
    done = [[*iteration.blocks, *iteration.transfers] for iteration in plan.iterations]
    return sorted_starts(job_vars.graph, [[execution.start_us for execution in row] for row in done])


def build(operations: Operations, bound: int, limit: int) -> CpSatActivities:
    """Build the model of an instance with task-graph jobs.

    Parameters
    ----------
    operations
        The compiled instance.
    bound, limit
        Every plan's objective is at least `bound`, and only plans at most `limit` are of interest. On the cyclic
        horizon the period is `limit` unless `spans_suffice`: what is feasible at a period is so at every longer one
        (specification: cyclic-horizon).
    """
    proto, gpus = new_model(), Gpus(operations.routes)
    axis = _axis(proto, operations, bound, limit)
    jobs = [TaskGraphVariables(graph) for graph in operations.task_graphs]
    for job_vars in jobs:
        add_placement(proto, gpus, job_vars)
        add_sizes(proto, gpus, job_vars)
        add_starts(proto, job_vars, axis)
        add_waits(proto, job_vars, axis)
        add_order_of_parts(proto, job_vars)
    workers = WorkerJobs(proto, operations, axis)
    add_order_of_gpus(proto, gpus, jobs)
    add_blocks_disjoint(proto, gpus, jobs, axis, workers)
    add_transfers_disjoint(proto, jobs, axis, workers)
    add_memory(proto, gpus, jobs, axis, workers)
    if isinstance(axis, ModuloAxis):
        # All jobs together can be moved in time, and then come around.
        proto.add(jobs[0].starts[0][0].offset == 0)
    if isinstance(axis, SpanAxis):
        proto.minimize(axis.period)
        add_loads(proto, gpus, jobs, workers, axis.period)
    elif operations.horizon == "cyclic":
        add_loads(proto, gpus, jobs, workers, limit)
    else:
        add_objective(proto, operations, gpus, jobs, workers, bound, limit)
    return CpSatActivities(operations, gpus, jobs, workers, axis, proto)


def spans_suffice(operations: Operations) -> bool:
    """Return whether a cyclic instance can be stated in absolute times, with the period as a variable.

    Slots of one job are on different GPUs, so those of a single job share no GPU. Where a barrier keeps each slot
    within one period, its blocks are apart modulo the period where they are apart at all, and so is what they hold.
    Transfers know no barrier, so none may use a link. Slots that share a power cap are not apart by that.
    """
    alone = len(operations.task_graphs) == 1 and not operations.jobs and operations.horizon == "cyclic"
    capped = bool(operations.cluster.capacities)
    return alone and not capped and operations.task_graphs[0].shape.barrier != "none" and not _uses_links(operations)


def _uses_links(operations: Operations) -> bool:
    """Return whether a transfer may use a link."""
    return bool(operations.cluster.links) and any(graph.shape.transfers for graph in operations.task_graphs)


def _axis(model: cp_model.CpModel, operations: Operations, bound: int, limit: int) -> TimeAxis:
    if spans_suffice(operations):
        return SpanAxis(serial_limit(operations), model.new_int_var(max(1, bound), limit, "period"))
    return ModuloAxis(limit) if operations.horizon == "cyclic" else TimeAxis(limit)


def add_loads(
    model: cp_model.CpModel,
    gpus: Gpus,
    jobs: Sequence[TaskGraphVariables],
    workers: WorkerJobs,
    most: cp_model.LinearExprT,
) -> None:
    """Require that no GPU has more work than there is time.

    `most`: the time that there is, in microseconds: the makespan or the period.
    """
    for g in range(len(gpus.all)):
        model.add(load_of(gpus, jobs, g, workers) <= most)


def add_objective(
    model: cp_model.CpModel,
    operations: Operations,
    gpus: Gpus,
    jobs: Sequence[TaskGraphVariables],
    workers: WorkerJobs,
    bound: int,
    limit: int,
) -> None:
    """Minimise the latest end of a job, or the weighted sum of all ends (specification: objective).

    `bound, limit`: the objective lies between them, in microseconds (times weight for the weighted sum).
    """
    objective = model.new_int_var(bound, limit, operations.objective)
    model.minimize(objective)
    weighted = operations.objective == "weighted_completion"
    ends: list[cp_model.LinearExpr] = [
        job_vars.job.weight * job_vars.ends[-1] if weighted else job_vars.ends[-1] for job_vars in workers.jobs
    ]
    for job_vars in jobs:
        deadline = job_vars.graph.job.deadline_us
        end = model.new_int_var(0, limit if deadline is None else min(limit, deadline), "")
        last = job_vars.graph.job.iterations - 1
        for operation in range(job_vars.graph.size):
            # An operation waits for itself in the iteration before, so the last one ends last.
            model.add(end >= job_vars.end(last, operation))
        ends.append(job_vars.graph.job.weight * end if weighted else end)
    if weighted:
        model.add(objective == sum(ends))
        return
    for last_end in ends:
        model.add(objective >= last_end)
    add_loads(model, gpus, jobs, workers, objective)


def interval_count(operations: Operations) -> int:
    """Return about how many optional intervals the model has."""
    gpus, count = Gpus(operations.routes), 0
    others = windows.interval_count(operations)
    types = [gpus.gpu_type(g) for g in range(len(gpus.all))]
    for graph in operations.task_graphs:
        places = [sum(gpu_type in own for gpu_type in types) for own in graph.gpu_types]
        uses = sum(places[slot] for block in range(graph.blocks) for slot in graph.takes_part[block])
        holds = sum(places[hold.slot] for hold in graph.holds)
        links = len(operations.cluster.links) * len(graph.shape.transfers)
        count += graph.job.iterations * (uses + holds + links)
    # On the axis modulo a period, each use has a second interval one period later.
    return others + count * (2 if operations.horizon == "cyclic" else 1)


def channel_count(operations: Operations) -> int:
    """Return how many combinations of servers the model goes through for one transfer at most."""
    servers, most = [server.gpu_type for server in operations.cluster.servers], 0
    for graph in operations.task_graphs:
        places = [sum(gpu_type in own for gpu_type in servers) for own in graph.gpu_types]
        most = max([most, *(prod(places[slot] for slot in own) for own in graph.takes_part[graph.blocks :])])
    return most
