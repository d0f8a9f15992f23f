"""What is taken of the memory of GPUs over time (specification: memory, holds)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
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
    """Return the use of each GPU that changes over time, by name and in the cluster's order.

    So it does where a task-graph job holds something, and where jobs follow one another since memory cannot hold them
    all at once.

    Parameters
    ----------
    instance, plan
        A correct plan. One period of a cyclic plan is shown, with everything that begins before it and ends after it.
    """
    scarce = instance.horizon == "finite" and len(instance.jobs) > 1
    if not scarce and not any(job.shape.holds for job in instance.task_graph_jobs):
        return {}
    operations = compile_instance(instance)
    end_us = plan.period_us or max(map(job_end, plan.jobs))
    changes, residents = defaultdict[str, Counter[int]](Counter), defaultdict[str, list[_MemoryTaken]](list)
    planned = {job.name: job for job in plan.jobs}
    for graph in operations.task_graphs:
        own = planned[graph.job.name]
        begin, end = (0, end_us) if plan.period_us else _span(own)
        for slot, gpu in zip(graph.shape.slots, own.gpus, strict=True):
            residents[gpu].append(_MemoryTaken(begin, end, slot.memory, 0))
        for gpu, moment, size in _changes(graph, own, plan.period_us) if isinstance(own, TaskGraphJobPlan) else ():
            changes[gpu][moment] += size
    for job in operations.jobs:
        own = planned[job.name]
        begin, end = (0, end_us) if plan.period_us else _span(own)
        for worker, gpu in enumerate(own.gpus):
            deepest = max(i.blocks[worker].level for i in own.iterations) if isinstance(own, JobPlan) else 0
            residents[gpu].append(_MemoryTaken(begin, end, job.state_bytes, job.activation_bytes[deepest - 1]))
    cluster, found = instance.cluster, {}
    for number, server in enumerate(cluster.servers):
        for gpu in (cluster.gpu_name(number, k) for k in range(server.gpus)):
            if gpu in changes or needed_bytes(resident[2:] for resident in residents[gpu]) > server.gpu_memory:
                found[gpu] = MemoryUse(server.gpu_memory, _steps(changes[gpu], residents[gpu], end_us))
    return found


class _MemoryTaken(NamedTuple):
    """What a worker or slot takes of its GPU while its job is present."""

    start_us: int
    end_us: int
    bytes: int
    activations: int


def _span(job: JobPlan | TaskGraphJobPlan) -> tuple[int, int]:
    """Return begin and end of a job, in microseconds."""
    starts = (done.start_us for iteration in job.iterations for done in (*iteration.blocks, *iteration.transfers))
    return min(starts), job_end(job)


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


def _steps(changes: Counter[int], residents: Sequence[_MemoryTaken], end_us: int) -> tuple[MemoryStep, ...]:
    """Return what is taken between two changes each."""
    moments = {moment for moment, size in changes.items() if size}
    times = sorted({0, end_us, *moments, *(time for resident in residents for time in resident[:2])})
    held = accumulate(changes[moment] for moment in times)
    steps = []
    for (start, end), size in zip(pairwise(times), held, strict=False):
        present = [resident[2:] for resident in residents if resident.start_us <= start < resident.end_us]
        steps.append(MemoryStep(start, end, size + needed_bytes(present)))
    return tuple(steps)
