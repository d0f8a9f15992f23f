"""The phases of a plan, each as a plan by itself that some processes carry out. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Phase, Plan, TaskGraphJobPlan

__all__ = ["PhasePart", "jobs_in_phases", "phase_parts", "restarts"]


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


def jobs_in_phases(instance: Instance, plan: Plan) -> list[list[JobPlan | TaskGraphJobPlan]]:
    """Return for each job of the instance what it does in one repetition of each of its phases."""
    found: list[list[JobPlan | TaskGraphJobPlan]] = [[] for _ in instance.jobs]
    for group in phase_parts(instance, plan):
        for part in group:
            for number, job in zip(part.numbers, part.plan.jobs, strict=True):
                found[number].append(job)
    return found


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
