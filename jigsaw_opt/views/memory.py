"""What is taken of the memory of GPUs over time (specification: memory, holds)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from jigsaw_opt.problem.compiled_task_graph import CompiledTaskGraph
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.memory import needed_bytes
from jigsaw_opt.problem.operations import compile_instance
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.timetable import job_end

__all__ = ["MemoryStep", "MemoryUse", "memory_use"]


class MemoryStep(NamedTuple):
    """So many bytes are taken between two times in microseconds."""

    start_us: int
    end_us: int
    bytes: int


class MemoryUse(NamedTuple):
    """Bytes that a GPU has, and what is taken of them from the beginning to the end of the picture."""

    bytes: int
    steps: tuple[MemoryStep, ...]


def memory_use(instance: Instance, plan: Plan) -> dict[str, MemoryUse]:
    """Return the use of each GPU on which a task-graph job holds something, by name and in the cluster's order.

    Parameters
    ----------
    instance, plan
        A correct plan. One period of a cyclic plan is shown, with everything that begins before it and ends after it.
    """
    if not any(job.shape.holds for job in instance.task_graph_jobs):
        return {}
    operations = compile_instance(instance)
    end_us = plan.period_us or max(map(job_end, plan.jobs))
    steady, changes = Counter[str](), defaultdict[str, Counter[int]](Counter)
    graph_jobs = [job for job in plan.jobs if isinstance(job, TaskGraphJobPlan)]
    for graph, planned in zip(operations.task_graphs, graph_jobs, strict=True):
        for slot, gpu in zip(graph.shape.slots, planned.gpus, strict=True):
            steady[gpu] += slot.memory
        for gpu, moment, size in _changes(graph, planned, plan.period_us):
            changes[gpu][moment] += size
    workers: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for job, placed in zip(operations.jobs, (job for job in plan.jobs if isinstance(job, JobPlan)), strict=True):
        for worker, gpu in enumerate(placed.gpus):
            deepest = max(iteration.blocks[worker].level for iteration in placed.iterations)
            workers[gpu].append((job.state_bytes, job.activation_bytes[deepest - 1]))
    cluster, found = instance.cluster, {}
    for number, server in enumerate(cluster.servers):
        for gpu in (cluster.gpu_name(number, k) for k in range(server.gpus)):
            if gpu in changes:
                always = steady[gpu] + needed_bytes(workers[gpu])
                found[gpu] = MemoryUse(server.gpu_memory, _steps(changes[gpu], always, end_us))
    return found


def _changes(graph: CompiledTaskGraph, plan: TaskGraphJobPlan, period_us: int | None) -> Iterator[tuple[str, int, int]]:
    """Yield GPU, time, and bytes taken (given back if below 0), within one period of a cyclic plan."""
    for hold in graph.holds:
        gpu = plan.gpus[hold.slot]
        for iteration in plan.iterations:
            start, end = iteration.blocks[hold.start].start_us, iteration.blocks[hold.end].end_us
            if end <= start:
                continue
            if period_us is not None:
                # Copies that began in earlier periods and have not ended are there from the beginning.
                yield gpu, 0, (end // period_us - start // period_us) * hold.bytes
                start, end = start % period_us, end % period_us
            yield gpu, start, hold.bytes
            yield gpu, end, -hold.bytes


def _steps(changes: Counter[int], always: int, end_us: int) -> tuple[MemoryStep, ...]:
    """Return what is taken between two changes each."""
    times = sorted({0, end_us, *(moment for moment, size in changes.items() if size)})
    taken = accumulate((changes[moment] for moment in times), initial=always)
    next(taken)
    return tuple(MemoryStep(start, end, size) for (start, end), size in zip(pairwise(times), taken, strict=False))
