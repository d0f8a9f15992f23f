"""Some jobs of a plan alone: their operations in the plan's order, each as early as can be. Needs no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.executor.replay.phases import PhasePart
from jigsaw_opt.problem.activities import ActivityNetwork
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.operations import compile_instance
from jigsaw_opt.problem.plan import (
    Block,
    Execution,
    Iteration,
    JobPlan,
    Plan,
    TaskGraphIteration,
    TaskGraphJobPlan,
    Transfer,
)
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.timetable import job_end
from jigsaw_opt.solvers.activities.flat import Arc

__all__ = ["alone_part"]

_Timed = TypeVar("_Timed", Block, Transfer, Execution)


def alone_part(instance: Instance, plan: Plan, names: Collection[str]) -> PhasePart:
    """Return some jobs of a plan as if there were no others.

    GPUs and links take their operations in the order of the plan. The period is the least one of this order; on the
    finite horizon all start as early as they can.
    """
    numbers = tuple(number for number, job in enumerate(instance.jobs) if job.name in names)
    own = altered(instance, jobs=tuple(instance.jobs[number] for number in numbers))
    kept = plan.with_jobs(tuple(plan.jobs[number] for number in numbers))
    network = _network(own, kept)
    arcs = list(_arcs(network, kept))
    period = kept.period_us
    starts = _starts(network, arcs, period or 0)
    assert starts is not None, "the plan is correct"
    if period is not None:
        least = 1
        while least < period:  # the plan's own period is long enough
            middle = (least + period) // 2
            found = _starts(network, arcs, middle)
            if found is None:
                least = middle + 1
            else:
                starts, period = found, middle
    moments = iter(starts)
    jobs = tuple(_moved(job, moments) for job in kept.jobs)
    length = max(map(job_end, jobs)) if period is None else period
    made = replace(kept.with_jobs(jobs).with_period(period), instance_sha256=instance_sha256(own))
    made = replace(made, status="feasible", objective=length, bound=0, solver={"name": "alone"})
    return PhasePart(next(phase for _, _, phase in made.all_phases()), own, made, numbers, (0,) * len(numbers), 1)


def _network(instance: Instance, plan: Plan) -> ActivityNetwork:
    """Return the operations of a plan, and what they wait for."""
    operations = compile_instance(instance)
    network, place_of = ActivityNetwork(operations.routes, instance.horizon), operations.cluster.gpus.place_of
    graphs = {graph.name: graph for graph in operations.jobs}
    by_name = {graph.job.name: graph for graph in operations.task_graphs}
    for job in plan.jobs:
        gpus = [place_of[name] for name in job.gpus]
        if isinstance(job, JobPlan):
            network.add_data_parallel(
                graphs[job.name], gpus, [[block.level for block in row.blocks] for row in job.iterations]
            )
        else:
            network.add_task_graph(by_name[job.name], gpus)
    return network


def _arcs(network: ActivityNetwork, plan: Plan) -> Iterator[Arc]:
    """Yield what operations wait for, and the order in which GPUs and links take them in the plan."""
    lengths = [each.duration_us for each in network.activities]
    for before, after, periods, offset in network.waits:
        yield Arc(before, after, lengths[before] if offset is None else offset, periods)
    planned = [block.start_us for job in plan.jobs for row in job.iterations for block in (*row.blocks, *row.transfers)]
    cycle = plan.period_us or max(planned) + 1
    turns: dict[object, list[tuple[int, int, int]]] = defaultdict(list)
    for number, (activity, start) in enumerate(zip(network.activities, planned, strict=True)):
        for resource in (*activity.gpus, *activity.links) if activity.duration_us else ():
            turns[resource].append((start % cycle, number, start // cycle))
    for own in turns.values():
        own.sort()
        for (_, before, one), (_, after, other) in pairwise(own):
            yield Arc(before, after, lengths[before], one - other)
        if plan.period_us is not None:
            yield Arc(own[-1][1], own[0][1], lengths[own[-1][1]], own[-1][2] - own[0][2] + 1)


def _starts(network: ActivityNetwork, arcs: Sequence[Arc], period: int) -> list[int] | None:
    """Return the earliest starts at a period; None where something would wait for itself."""
    starts = [activity.release_us for activity in network.activities]
    for _ in range(len(starts) + 1):
        is_done = True
        for before, after, length, periods in arcs:
            if (moment := starts[before] + length - periods * period) > starts[after]:
                starts[after], is_done = moment, False
        if is_done:
            return starts
    return None


def _moved(job: JobPlan | TaskGraphJobPlan, starts: Iterator[int]) -> JobPlan | TaskGraphJobPlan:
    """Return a job whose operations start at the next moments."""
    if isinstance(job, JobPlan):
        rows = (Iteration(_all_at(row.blocks, starts), _all_at(row.transfers, starts)) for row in job.iterations)
        return replace(job, iterations=tuple(rows))
    steps = (
        TaskGraphIteration(_all_at(iteration.blocks, starts), _all_at(iteration.transfers, starts))
        for iteration in job.iterations
    )
    return replace(job, iterations=tuple(steps))


def _all_at(operations: Sequence[_Timed], starts: Iterator[int]) -> tuple[_Timed, ...]:
    """Return operations that start at the next moments."""
    found = []
    for operation in operations:
        start = next(starts)
        found.append(replace(operation, start_us=start, end_us=start + operation.end_us - operation.start_us))
    return tuple(found)
