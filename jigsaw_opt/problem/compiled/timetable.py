"""From decisions to a plan: placement, levels and starts become blocks and transfers with exact ends.

Every formulation and every heuristic reads its solution back through `assemble`, so ends,
objective and period are always the exact ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import contributors
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Block, Iteration, JobPlan, TaskGraphJobPlan, Transfer

Gpu = tuple[int, int]
"""A GPU as (index of the server, index in the server)."""


@dataclass(frozen=True, slots=True)
class JobDecision:
    """All that has to be chosen for one job.

    `levels`: level of each slot, by iteration: ``levels[i][slot]``. `block_starts`: start of each block, by iteration,
    in microseconds. `transfer_starts`: start of each transfer, by iteration, in microseconds.
    """

    gpus: Sequence[Gpu]
    levels: Sequence[Sequence[int]]
    block_starts: Sequence[Sequence[int]]
    transfer_starts: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Timetable:
    """A plan without its paperwork: the jobs, and the period of a cyclic one (None for a finite one).

    Jobs with a task graph stand apart, in the instance's order among themselves.
    """

    jobs: tuple[JobPlan, ...]
    period_us: int | None = None
    task_graph_jobs: tuple[TaskGraphJobPlan, ...] = ()

    @classmethod
    def of(cls, jobs: Iterable[JobPlan | TaskGraphJobPlan], period_us: int | None) -> Timetable:
        """Return the timetable of the plans of some jobs.

        `period_us`: the period in microseconds; None on the finite horizon.
        """
        workers, graphs = list[JobPlan](), list[TaskGraphJobPlan]()
        for job in jobs:
            if isinstance(job, JobPlan):
                workers.append(job)
            else:
                graphs.append(job)
        return cls(tuple(workers), period_us, tuple(graphs))

    @property
    def ends(self) -> list[int]:
        """End of each job in microseconds, data-parallel ones before task-graph ones."""
        return [job.end_us for job in self.plans]

    @property
    def plans(self) -> tuple[JobPlan | TaskGraphJobPlan, ...]:
        """All jobs, data-parallel ones before task-graph ones."""
        return (*self.jobs, *self.task_graph_jobs)

    def plans_of(self, instance: Instance) -> tuple[JobPlan | TaskGraphJobPlan, ...]:
        """Return the plans of all jobs in the order of the instance."""
        found = {plan.name: plan for plan in self.plans}
        return tuple(found[job.name] for job in instance.jobs)


def assemble(operations: Operations, decisions: Sequence[JobDecision]) -> tuple[JobPlan, ...]:
    """Return the job plans of the decisions, one for each job, with every end exactly its start plus its duration.

    Parameters
    ----------
    operations
        The compiled instance.
    decisions
        GPUs, levels and starts of each job, in the instance's order.

    Raises
    ------
    ValueError
        Where two workers of a job sit on servers that no path joins.
    """
    return tuple(_job_plan(operations, job, decision) for job, decision in zip(operations.jobs, decisions, strict=True))


def decisions_of(operations: Operations, jobs: Sequence[JobPlan]) -> list[JobDecision]:
    """Return what was chosen for each job, from its plan; `assemble` makes the plan of it again."""
    number = operations.cluster.gpus.place_of
    return [
        JobDecision(
            [number[gpu] for gpu in job.gpus],
            job.levels,
            [[block.start_us for block in iteration.blocks] for iteration in job.iterations],
            [[transfer.start_us for transfer in iteration.transfers] for iteration in job.iterations],
        )
        for job in jobs
    ]


def objective_of(
    operations: Operations,
    jobs: Sequence[JobPlan],
    period_us: int | None = None,
    task_graph_jobs: Sequence[TaskGraphJobPlan] = (),
) -> int:
    """Return the objective of a timetable (specification: objective).

    In microseconds (times weight for a weighted sum).
    """
    return objective_of_ends(operations, [job.end_us for job in (*jobs, *task_graph_jobs)], period_us)


def objective_of_ends(operations: Operations, ends: Sequence[int], period_us: int | None = None) -> int:
    """Return the objective of a timetable of which the ends of all jobs are known (specification: objective).

    In microseconds (times weight for a weighted sum).

    `ends`: end of each job, data-parallel ones before task-graph ones, in microseconds.
    """
    if operations.objective == "period":
        if period_us is None:
            raise ValueError("a cyclic plan needs its period")
        return period_us
    if operations.objective == "makespan":
        return max(ends)
    return sum(weight * end for weight, end in zip(operations.weights, ends, strict=True))


def lateness_us(operations: Operations, ends: Sequence[int], period_us: int | None = None) -> int:
    """Return the sum of microseconds by which a plan breaks guarantees; 0 where it keeps all."""
    if period_us is not None:
        limit = operations.objective_limit
        return 0 if limit is None else max(0, period_us - limit)
    guaranteed = zip(ends, operations.deadlines, strict=True)
    return sum(max(0, end - deadline) for end, deadline in guaranteed if deadline is not None)


def _job_plan(operations: Operations, job: OperationGraph, decision: JobDecision) -> JobPlan:
    channel = operations.routes.under(job.route_policy).channel(Counter(server for server, _ in decision.gpus))
    if channel is None:
        raise ValueError(f"no path joins all servers of job {job.name}")
    servers = operations.cluster.servers
    durations = [block.duration_us[servers[decision.gpus[block.slot][0]].gpu_type] for block in job.blocks]
    exchange = cache(lambda bucket, count: job.transfer_us(bucket, count, channel))
    iterations = []
    rows = zip(decision.levels, decision.block_starts, decision.transfer_starts, strict=True)
    for levels, starts, transfer_starts in checking_deadline(rows):
        blocks = tuple(
            Block(levels[block.slot], start, start + table[levels[block.slot] - 1])
            for block, table, start in zip(job.blocks, durations, starts, strict=True)
        )
        transfers = tuple(
            Transfer(
                operation.bucket, start, start + exchange(operation.bucket, contributors(levels, operation.bucket))
            )
            for operation, start in zip(job.transfers, transfer_starts, strict=True)
        )
        iterations.append(Iteration(blocks, transfers))
    gpus = tuple(operations.cluster.gpu_name(*gpu) for gpu in decision.gpus)
    return JobPlan(job.name, gpus, tuple(iterations))
