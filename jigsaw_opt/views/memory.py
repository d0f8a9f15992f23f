"""What is taken of the memory of GPUs over time (specification: memory, holds)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan


class MemoryStep(NamedTuple):
    """So many bytes are taken between two times in microseconds, by the jobs of these names."""

    start_us: int
    end_us: int
    bytes: int
    jobs: tuple[str, ...] = ()


class MemoryUse(NamedTuple):
    """Bytes that a GPU has, and what is taken of them from the beginning to the end of the picture."""

    bytes: int
    steps: tuple[MemoryStep, ...]

    def within(self, moment: int, length: int) -> MemoryUse:
        """Return the use at one moment as that of a whole picture of some length, both in microseconds."""
        there = next(step for step in self.steps if step.start_us <= moment < step.end_us)
        return MemoryUse(self.bytes, (there._replace(start_us=0, end_us=length),))


class _MemoryTaken(NamedTuple):
    """What a worker or slot takes of its GPU while its job is present."""

    start_us: int
    end_us: int
    bytes: int
    activations: int
    job: str


_Part = tuple[int, int, JobPlan | TaskGraphJobPlan]
"""From when to when a job is present, and what it does meanwhile."""


def memory_use(instance: Instance, plan: Plan) -> dict[str, MemoryUse]:
    """Return the use of each GPU of a plan, by name and in the cluster's order, where that of any changes over time.

    So it does where a task-graph job holds something, and where jobs follow one another since memory cannot hold them
    all at once. Where all jobs stay in memory together, nothing is returned.

    `instance, plan`: A correct plan. One period of a cyclic plan is shown, with everything that begins before it and
    ends after it; of a phased plan all phases, in each of which what slots hold counts with its most in a period.
    """
    scarce = instance.horizon == "finite" and len(instance.jobs) > 1
    if not scarce and not any(job.shape.holds for job in instance.task_graph_jobs):
        return {}
    operations = compile_instance(instance)
    parts = _parts_of_phases(plan) if plan.is_phased else _parts(plan)
    end_us = max(end for own in parts.values() for _, end, _ in own)
    changes, residents = defaultdict[str, Counter[int]](Counter), defaultdict[str, list[_MemoryTaken]](list)
    for graph in operations.task_graphs:
        for begin, end, own in parts[graph.job.name]:
            for slot, gpu in zip(graph.shape.slots, own.gpus, strict=True):
                residents[gpu].append(_MemoryTaken(begin, end, slot.memory, 0, graph.job.name))
            for gpu, moment, size in _changes(graph, own, plan.period_us) if not plan.is_phased else ():
                changes[gpu][moment] += size
    for job in operations.jobs:
        levels = [row for _, _, own in parts[job.name] for row in own.levels]
        deepest = [max(of_worker) for of_worker in zip(*levels, strict=True)]
        for begin, end, own in parts[job.name]:
            for gpu, level in zip(own.gpus, deepest, strict=True):
                activations = job.activation_bytes[level - 1]
                residents[gpu].append(_MemoryTaken(begin, end, job.state_bytes, activations, job.name))
    for gpu, moment, size in _most_held(instance, plan) if plan.is_phased else ():
        changes[gpu][moment] += size
    cluster = instance.cluster
    memory = {name: cluster.servers[k].gpu_memory for name, (k, _) in cluster.gpus.place_of.items()}
    needed = {gpu: needed_bytes(resident[2:4] for resident in own) for gpu, own in residents.items()}
    if not changes and all(size <= memory[gpu] for gpu, size in needed.items()):
        return {}
    used = [gpu for gpu in memory if needed.get(gpu) or gpu in changes]
    return {gpu: MemoryUse(memory[gpu], _steps(changes[gpu], residents[gpu], end_us)) for gpu in used}


def _parts(plan: Plan) -> dict[str, list[_Part]]:
    """Return when each job is present: in a cyclic plan all the time."""
    return {
        job.name: [(0, plan.period_us, job) if plan.period_us else (job.start_us, job.end_us, job)] for job in plan.jobs
    }


def _parts_of_phases(plan: Plan) -> dict[str, list[_Part]]:
    """Return when each job is present: from its first phase to the end of its last one, on the GPUs of the latest."""
    found = defaultdict[str, list[_Part]](list)
    for _, _, phase in plan.all_phases():
        for job in phase.jobs:
            if found[job.name] and found[job.name][-1][2].gpus == job.gpus:
                # It stays in memory between two phases, unless it moves.
                begin, _, before = found[job.name][-1]
                found[job.name][-1] = (begin, phase.start_us, before)
            found[job.name].append((phase.start_us, phase.end_us, job))
    return found


def _most_held(instance: Instance, plan: Plan) -> Iterator[tuple[str, int, int]]:
    """Yield GPU, time and bytes taken (given back if below 0): the most that slots hold in a period of each phase."""
    for _, _, phase in plan.all_phases():
        part, own = plan.alone(instance, phase)
        planned = {job.name: job for job in own.jobs}
        changes = defaultdict[str, Counter[int]](Counter)
        for graph in compile_instance(part).task_graphs:
            for gpu, moment, size in _changes(graph, planned[graph.job.name], own.period_us):
                changes[gpu][moment] += size
        for gpu, steps in changes.items():
            most = max(accumulate(steps[moment] for moment in sorted(steps)))
            yield gpu, phase.start_us, most
            yield gpu, phase.end_us, -most


def _changes(
    graph: CompiledTaskGraph, plan: JobPlan | TaskGraphJobPlan, period_us: int | None
) -> Iterator[tuple[str, int, int]]:
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
        present = [resident for resident in residents if resident.start_us <= start < resident.end_us]
        jobs = tuple(dict.fromkeys(resident.job for resident in present))
        steps.append(MemoryStep(start, end, size + needed_bytes(resident[2:4] for resident in present), jobs))
    return tuple(_joined(steps))


def _joined(steps: Iterable[MemoryStep]) -> Iterator[MemoryStep]:
    """Yield steps; neighbours in which the same jobs take the same are one."""
    for _, same in groupby(steps, key=lambda step: step[2:]):
        first, *more = same
        yield first._replace(end_us=(more or [first])[-1].end_us)
