"""Phases of a plan, the jobs that are in memory together, and where a run builds workers. Needs no torch.

Jobs that fit at the begin are built then, so that nothing is built while others run. A job that does not fit beside
those that start before it is built at the end of the last one that is in its way (specification: memory, licences).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from jigsaw_opt.checking.memory import most_at_once
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob

_Amount = tuple[int, int, int]
"""Start, end and bytes."""


class Seam(NamedTuple):
    """A moment of a pass from which on only the workers of some jobs are in memory.

    `start_us`: by the plan; what starts then or later comes after the seam. `jobs`: numbers of the jobs in the plan.
    """

    start_us: int
    jobs: frozenset[int]


def seams(instance: Instance, plan: Plan) -> tuple[Seam, ...]:
    """Return the moments of a pass at which workers are let go and built, the first one at its begin."""
    if plan.period_us is not None:
        return (Seam(0, frozenset(range(len(plan.jobs)))),)
    ends = [job.end_us for job in plan.jobs]
    starts = [job.start_us for job in plan.jobs]
    uses = [{gpu: _use(instance, job, gpu) for gpu in job.gpus} for job in plan.jobs]
    # The most bytes that each job keeps and holds on each GPU, and those of its activations.
    needs = [{gpu: (most_at_once(kept, None)[0], most) for gpu, (kept, (_, _, most)) in own.items()} for own in uses]
    memory = {f"{each.name}/{k}": each.gpu_memory for each in instance.cluster.servers for k in range(each.gpus)}
    for capacity in instance.scarce_capacities:
        memory[capacity.name] = capacity.units
        for own, asked in zip(needs, plan.jobs, strict=True):
            if asked.name in capacity.amounts:
                own[capacity.name] = capacity.amounts[asked.name], 0
    built: dict[int, int] = {}

    def fits(job: int, moment: int) -> bool:
        """Return whether a job finds what it holds from a moment on, beside those built before that have not ended."""
        there = [needs[job], *(needs[other] for other in built if ends[other] > moment)]
        return all(needed_bytes(own[gpu] for own in there if gpu in own) <= memory[gpu] for gpu in needs[job])

    for job in sorted(range(len(plan.jobs)), key=starts.__getitem__):
        moments = sorted({0, *(ends[other] for other in built if ends[other] <= starts[job])})
        # From the last of these moments on only those are left that the plan has beside it.
        built[job] = next((moment for moment in moments if fits(job, moment)), moments[-1])
    return tuple(
        Seam(moment, frozenset(job for job, at in built.items() if at <= moment < ends[job]))
        for moment in sorted({0, *built.values()})
    )


def planned_bytes(instance: Instance, plan: Plan, gpu: str) -> int:
    """Return the most bytes that the present jobs of a plan of one phase need on a GPU at one moment."""
    uses = [_use(instance, job, gpu, plan.period_us) for job in plan.jobs if gpu in job.gpus]
    kept = [amount for own, _ in uses for amount in own]
    return most_at_once(kept, plan.period_us, [activations for _, activations in uses])[0]


def _use(
    instance: Instance, job: JobPlan | TaskGraphJobPlan, gpu: str, period_us: int | None = None
) -> tuple[list[_Amount], _Amount]:
    """Return what a job keeps on one of its GPUs while it is present and holds then, and its activations."""
    span = (job.start_us, job.end_us) if period_us is None else (0, period_us)
    asked, slot = next(each for each in instance.jobs if each.name == job.name), job.gpus.index(gpu)
    if isinstance(asked, TaskGraphJob):
        held = _held(asked.shape, job, asked.shape.slots[slot].name)
        return [(*span, asked.shape.slots[slot].memory), *held], (*span, 0)
    model, deepest = instance.models[asked.model], max(levels[slot] for levels in job.levels)
    return [(*span, model.state_bytes)], (*span, model.activation_bytes()[deepest - 1])


def _held(shape: TaskGraph, job: JobPlan | TaskGraphJobPlan, slot: str) -> Iterator[_Amount]:
    """Yield what a job holds at one of its slots (specification: holds)."""
    number = {block.name: k for k, block in enumerate(shape.blocks)}
    for hold in shape.holds:
        start, end = number[hold.start], number[hold.end]
        if slot == (hold.slot or shape.blocks[start].slots[0]):
            for row in job.iterations:
                if row.blocks[start].start_us < row.blocks[end].end_us:
                    yield row.blocks[start].start_us, row.blocks[end].end_us, hold.bytes


@dataclass(frozen=True, slots=True)
class PhasePart:
    """A phase of a plan.

    `instance, plan`: its jobs alone, and the plan that it repeats. `numbers`: numbers of its jobs in the whole
    instance. `before`: iterations that each of its jobs has in earlier phases. `number`: its own number among the
    phases of all groups.
    """

    phase: Phase
    instance: Instance
    plan: Plan
    numbers: tuple[int, ...]
    before: tuple[int, ...]
    number: int

    @property
    def repeats(self) -> int | None:
        """How often it takes place; None where the plan leaves that to whoever carries it out."""
        return self.phase.repeats if self.phase.is_counted else None

    def done(self, done: Sequence[int]) -> list[int]:
        """Return for each job how many of its iterations here are among so many of every job of the instance."""
        found = [max(0, done[number] - before) for number, before in zip(self.numbers, self.before, strict=True)]
        if self.repeats is None:
            return found
        return list(map(min, found, self.iterations(self.repeats)))

    def iterations(self, repeats: int) -> list[int]:
        """Return the iterations of its jobs in so many repetitions."""
        return [repeats * len(job.iterations) for job in self.phase.jobs]


def phase_parts(instance: Instance, plan: Plan) -> list[list[PhasePart]]:
    """Return the phases of a plan, by group, each as a plan of its own."""
    done = [0] * len(instance.jobs)
    groups: list[list[PhasePart]] = [[] for _ in plan.groups]
    for count, (group, _, phase) in enumerate(plan.all_phases()):
        numbers = phase.numbers_in(instance)
        before = tuple(done[number] for number in numbers)
        part = PhasePart(phase, *plan.alone(instance, phase), numbers, before, count)
        groups[group].append(part)
        for number, iterations in zip(numbers, part.iterations(part.repeats or 0), strict=True):
            done[number] += iterations
    return groups


class PlannedPhases(NamedTuple):
    """The phases of a plan, and who carries them out.

    `groups`: the phases by group. `jobs`: for each job of the instance, what it does in one repetition of each of its
    phases. `gpus`: those that hold workers, as `used_gpus` orders them.
    """

    groups: list[list[PhasePart]]
    jobs: list[list[JobPlan | TaskGraphJobPlan]]
    gpus: tuple[str, ...]


def phases_of(instance: Instance, plan: Plan) -> PlannedPhases:
    """Return the phases of a plan with the jobs and GPUs that carry them out."""
    groups = phase_parts(instance, plan)
    jobs: list[list[JobPlan | TaskGraphJobPlan]] = [[] for _ in instance.jobs]
    for part in chain.from_iterable(groups):
        for number, job in zip(part.numbers, part.plan.jobs, strict=True):
            jobs[number].append(job)
    return PlannedPhases(groups, jobs, used_gpus(instance, chain.from_iterable(jobs)))


def used_gpus(instance: Instance, jobs: Iterable[JobPlan | TaskGraphJobPlan]) -> tuple[str, ...]:
    """Return GPUs that hold workers of some jobs: task-graph jobs by slot, then others in the cluster's order."""
    kept = list(jobs)
    slots = [gpu for job in kept if isinstance(job, TaskGraphJobPlan) for gpu in job.gpus]
    used = {gpu for job in kept for gpu in job.gpus}
    return tuple(dict.fromkeys([*slots, *(name for name in instance.cluster.gpus.names if name in used)]))


def restarts(instance: Instance, parts: Sequence[PhasePart], number: int) -> dict[int, int]:
    """Return jobs that a phase builds anew as they have moved or were absent before it (specification: moves).

    By number of a job with a ``restart_us``, the number of its last phase before. A job that follows at once on the
    same GPUs has no restart, one without a ``restart_us`` never.
    """
    found, gpus = {}, [dict(zip(part.numbers, (job.gpus for job in part.plan.jobs), strict=True)) for part in parts]
    for job in parts[number].numbers:
        earlier = next((k for k in reversed(range(number)) if job in gpus[k]), None)
        if earlier is None or instance.jobs[job].restart_us is None:
            continue
        if earlier < number - 1 or gpus[earlier][job] != gpus[number][job]:
            found[job] = earlier
    return found
