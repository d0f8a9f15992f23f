"""A solution read back, and a timetable written as a hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat.parts import sorted_starts
from jigsaw_opt.formulations.cpsat.variables import JobVariables, TaskGraphVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility, block_us
from jigsaw_opt.problem.compiled.activities import TaskGraphDecision
from jigsaw_opt.problem.compiled.timetable import JobDecision
from jigsaw_opt.problem.costs import contributors
from jigsaw_opt.problem.plan import JobPlan, TaskGraphJobPlan

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression

Value = Callable[["cp_model.IntVar"], int]
"""Value of a variable in a solution."""


def value_of(value: Value, expression: Expression) -> int:
    """Return the value of an expression in a solution."""
    # An engine and its callback evaluate sums of variables as well.
    return expression if isinstance(expression, int) else value(expression)  # type: ignore[arg-type]


def decision_of(eligibility: GpuEligibility, job_vars: JobVariables, value: Value) -> JobDecision:
    """Return what a solution decides for one job; its workers stand in the order of their GPUs."""
    gpus = [g for g, assigned in job_vars.assigned.items() if value(assigned)]
    levels = [[next(d for d, literal in row[g].items() if value(literal)) for g in gpus] for row in job_vars.levels]
    starts = [[value(row[g]) for g in gpus] for row in job_vars.starts]
    # A job that can use no link has no variables for its transfers: nobody else waits for them.
    if job_vars.exchanges:
        transfers = [[value(exchange.start) for exchange in row] for row in job_vars.exchanges]
    else:
        transfers = _earliest_transfers(eligibility, job_vars, gpus, levels, starts)
    offset = value_of(value, job_vars.offset)
    return JobDecision(
        [eligibility.gpus[g] for g in gpus],
        levels,
        [[start + offset for start in row] for row in starts],
        [[start + offset for start in row] for row in transfers],
    )


def task_graph_decision(eligibility: GpuEligibility, job_vars: TaskGraphVariables, value: Value) -> TaskGraphDecision:
    """Return what a solution decides for one task-graph job."""
    held = [next(g for g, literal in at.items() if value(literal)) for at in job_vars.at]
    starts = [[value_of(value, start.start) for start in row] for row in job_vars.starts]
    return TaskGraphDecision([eligibility.gpus[g] for g in held], starts)


def _earliest_transfers(
    eligibility: GpuEligibility,
    job_vars: JobVariables,
    gpus: Sequence[int],
    levels: Sequence[Sequence[int]],
    starts: Sequence[Sequence[int]],
) -> list[list[int]]:
    """Return starts of transfers that share no link: each when its bucket is ready and the one before has ended."""
    channel = eligibility.routes(job_vars.job).channel(Counter(eligibility.server(g) for g in gpus))
    if channel is None:
        raise ValueError(f"no path joins all servers of job {job_vars.job.name}")
    times = [block_us(job_vars.job, eligibility.gpu_type(g)) for g in gpus]
    result = []
    for row, begins in zip(levels, starts, strict=True):
        moment, transfers = 0, []
        for b in range(1, len(job_vars.job.transfers) + 1):
            ready = (s + t[b - 1] for s, t, d in zip(begins, times, row, strict=True) if d >= b)
            transfers.append(max(moment, *ready))
            moment = transfers[-1] + job_vars.job.transfer_us(b, contributors(row, b), channel)
        result.append(transfers)
    return result


def add_hint(
    model: cp_model.CpModel, job_vars: JobVariables, plan: JobPlan, gpus: Sequence[int], zero: int = 0
) -> None:
    """Hint one job's variables to its part of a timetable whose workers sit on `gpus`.

    `zero`: moment of the plan at which the job's own clock reads 0, in microseconds.
    """
    for g, assigned in job_vars.assigned.items():
        model.add_hint(assigned, g in gpus)
    barrier = plan.start_us - zero
    for i, iteration in enumerate(plan.iterations):
        blocks = dict(zip(gpus, iteration.blocks, strict=True))
        for g, start in job_vars.starts[i].items():
            # A start without a worker has no meaning, but it is bound by the barrier.
            model.add_hint(start, blocks[g].start_us - zero if g in blocks else barrier)
            _hint_level(model, job_vars.levels[i][g], blocks[g].level if g in blocks else None)
        for exchange, transfer in zip(
            job_vars.exchanges[i] if job_vars.exchanges else (), iteration.transfers, strict=False
        ):
            model.add_hint(exchange.start, transfer.start_us - zero)
        barrier = iteration.end_us - zero
        model.add_hint(job_vars.ends[i], barrier)
    if job_vars.presence is not None:
        job_vars.presence.hint(model, plan)


def _hint_level(model: cp_model.CpModel, literals: Mapping[int, cp_model.IntVar], level: int | None) -> None:
    if len(literals) > 1:
        for d, literal in literals.items():
            model.add_hint(literal, d == level)


def add_task_graph_hint(
    model: cp_model.CpModel,
    job_vars: TaskGraphVariables,
    plan: TaskGraphJobPlan,
    gpus: Sequence[int],
    offset: Callable[[int], int],
) -> None:
    """Hint one task-graph job's variables to its part of a timetable whose slots sit on `gpus`.

    `offset`: where a start lies on the axis.
    """
    for at, gpu in zip(job_vars.at, gpus, strict=True):
        for g, literal in at.items():
            model.add_hint(literal, g == gpu)
    for row, starts in zip(job_vars.starts, starts_of(job_vars, plan), strict=True):
        for start, moment in zip(row, starts, strict=True):
            model.add_hint(start.offset, offset(moment))
    if job_vars.presence is not None:
        job_vars.presence.hint(model, plan)


def starts_of(job_vars: TaskGraphVariables, plan: TaskGraphJobPlan) -> list[list[int]]:
    """Return the starts of a plan by iteration and operation, in the order that the model asks for."""
    done = [[execution.start_us for execution in iteration.operations] for iteration in plan.iterations]
    return sorted_starts(job_vars.graph, done)
