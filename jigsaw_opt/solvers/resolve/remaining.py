"""What is left of an instance and of its plan at a moment: iterations that have ended are done, and forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from jigsaw_opt.errors import InvalidInputError, Problem, TooLargeError, argument
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled.operations import MOST_OPERATIONS
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.plan import Iteration as WorkerIteration
from jigsaw_opt.problem.plan import JobPlan, Phase, PhaseGroup, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """Instance and plan that are left at a moment.

    `instance`: the jobs with the iterations that are left, released no earlier than the moment. Times stay absolute.
    `plan`: the plan of these iterations as it was: its order counts, its times are too early where an iteration was
    under way. `ended`: by name of a job that has ended, when it did, in microseconds. `done`: makespan or weighted
    completion of those.
    """

    instance: Instance
    plan: Plan
    ended: dict[str, int]
    done: int

    def total(self, objective: int | None) -> int | None:
        """Return the objective of all jobs, where the rest has an objective."""
        if objective is None:
            return None
        return max(self.done, objective) if self.instance.objective == "makespan" else self.done + objective


def remaining_at(instance: Instance, plan: Plan, moment: int) -> RemainingWork:
    """Return what is left of a plan on a finite horizon at a moment.

    An iteration counts as done where all of it has ended by then. One under way is lost, and done again. Where some
    iterations of a repetition of a phase are done, the others become a phase of their own, and the next repetitions
    follow it.
    """
    problems = []
    if instance.horizon == "cyclic":
        problems.append(
            Problem("$.horizon", "a cyclic plan has no moment at which something fails", code="unsupported")
        )
    if moment < 0:
        problems.append(Problem(argument("at_us"), f"must be at least 0; is {moment}", code="out-of-range"))
    phases = [] if problems else [phase for _, _, phase in plan.all_phases()]
    ends = {job.name: phase.end_of(job) for phase in phases for job in phase.jobs}
    if not problems and max(ends.values()) <= moment:
        problems.append(
            Problem(argument("at_us"), f"all jobs have ended by {max(ends.values())}; is {moment}", code="out-of-range")
        )
    if problems:
        raise InvalidInputError(problems)
    every = (PhaseGroup(tuple(_rest_of(group.phases, moment))) for group in plan.groups)
    rest = replace(plan, groups=tuple(group for group in every if group.phases))
    left = Counter[str]()
    for _, _, phase in rest.all_phases():
        left.update({job.name: phase.count * len(job.iterations) for job in phase.jobs})
    jobs = tuple(
        altered(job, iterations=left[job.name], release_us=max(job.release_us, moment))
        for job in instance.jobs
        if left[job.name]
    )
    ended = {name: end for name, end in ends.items() if not left[name]}
    weights = {job.name: job.weight for job in instance.jobs}
    weighted = sum(weights[name] * end for name, end in ended.items())
    done = max(ended.values(), default=0) if instance.objective == "makespan" else weighted
    return RemainingWork(altered(instance, jobs=jobs), rest, ended, done)


def listed(plan: Plan) -> Plan:
    """Return a phased plan with its iterations listed one by one."""
    parts: dict[str, list[JobPlan | TaskGraphJobPlan]] = {}
    for _, _, phase in plan.all_phases():
        moves = [(phase.start_us + turn * phase.cycle_us).__add__ for turn in checking_deadline(range(phase.count))]
        for job in phase.jobs:
            parts.setdefault(job.name, []).append(job.moved(*moves))
    jobs = tuple(own[0].with_iterations(chain.from_iterable(part.iterations for part in own)) for own in parts.values())
    return Plan.of_jobs(plan.instance, plan.instance_sha256, plan.status, plan.objective, plan.bound, None, jobs)


def _rest_of(phases: Sequence[Phase], moment: int) -> Iterator[Phase]:
    """Yield what is left of the phases of a group: of one under way, iterations up to a whole repetition come first."""
    for phase in phases:
        done = [_ended(phase, job, moment) for job in phase.jobs]
        turns = max(ceil_div(ended, len(job.iterations) or 1) for ended, job in zip(done, phase.jobs, strict=True))
        count = sum(turns * len(job.iterations) - ended for ended, job in zip(done, phase.jobs, strict=True))
        if count > MOST_OPERATIONS:
            raise TooLargeError(
                f"jobs of a phase are {count:,} iterations apart; {MOST_OPERATIONS:,} are listed at most"
            )
        begun = tuple(
            job.between(ended, turns * len(job.iterations), phase.period_us or 0)
            for ended, job in zip(done, phase.jobs, strict=True)
            if ended < turns * len(job.iterations)
        )
        if begun:
            yield replace(phase, period_us=phase.period_us and _span_us(begun), repeats=1, jobs=begun)
        if turns < phase.count:
            start_us = phase.start_us + turns * (phase.period_us or 0)
            yield replace(phase, start_us=start_us, repeats=phase.count - turns)


def _ended(phase: Phase, job: JobPlan | TaskGraphJobPlan, moment: int) -> int:
    """Return how many iterations of a job have ended in all repetitions of a phase; they end in their order."""
    since = moment - phase.start_us
    each = ((since - iteration.end_us) // (phase.period_us or 1) + 1 for iteration in job.iterations)
    return sum(min(phase.count, max(0, ended)) for ended in each)


def _span_us(jobs: Iterable[JobPlan | TaskGraphJobPlan]) -> int:
    """Return the time from the first start of jobs to their last end, in microseconds."""
    parts = [*jobs]
    return max(1, max(job.end_us for job in parts) - min(job.start_us for job in parts))


def in_progress_at(instance: Instance, plan: Plan, moment: int) -> tuple[Instance, Plan]:
    """Return what is left of a plan on a finite horizon at a moment, with the times of the plan.

    Jobs and iterations that have ended are left out, and with them jobs of the plan that the instance lacks. Jobs whose
    depth rule looks at all of their iterations keep all of them until they end, and others those that say which memory
    they hold. Jobs that the plan lacks stay as they are. There may be no job left.

    `instance, plan`: the plan keeps to the rules of the instance as far as they have the same jobs.
    """
    known = {job.name: job for job in plan.data_parallel}
    jobs: list[Job] = []
    lasting: list[JobPlan] = []
    for job in instance.data_parallel:
        old = known.get(job.name)
        if old is None:
            jobs.append(job)
        elif old.end_us > moment:
            kept = _remembered(job, old, moment, instance.models[job.model])
            jobs.append(altered(job, iterations=len(kept)))
            lasting.append(replace(old, iterations=tuple(kept)))
    return altered(instance, jobs=tuple(jobs)), plan.with_jobs(tuple(lasting))


def _remembered(job: Job, old: JobPlan, moment: int, model: Model) -> list[WorkerIteration]:
    """Return the iterations of a job that has not ended but for those that ended by a moment and count for nothing."""
    ended = sum(iteration.end_us <= moment for iteration in old.iterations)  # They end in their order.
    rest = altered(job, iterations=job.iterations - ended)
    whole, left = (each.depth.limits(each.workers, model.depth, each.iterations) for each in (job, rest))
    if whole.multiset is None or whole.multiset != left.multiset:
        return [*old.iterations]  # Its depth rule looks at the levels of all of them.
    # A worker takes the memory of its deepest level all the time. None is less deep than the first of these.
    levels = old.levels[:ended]
    deepest = [max((level, number) for number, level in enumerate(own)) for own in zip(*levels, strict=True)]
    kept = {number for level, number in deepest if level > whole.multiset[0]}
    # A job that waits for its next iteration stays in memory.
    starts = (block.start_us for block in old.iterations[ended].blocks)
    kept |= {ended - 1} if ended and min(starts) >= moment else set()
    return [old.iterations[number] for number in sorted(kept)] + [*old.iterations[ended:]]


def shifted_jobs(instance: Instance, plan: Plan, origin: int) -> tuple[Instance, Plan]:
    """Return the instance and the plan on a finite horizon with time counted from `origin`."""
    jobs = tuple(_job_from(job, origin) for job in instance.jobs)
    plans = tuple(job.moved((-origin).__add__) for job in plan.data_parallel)
    return altered(instance, jobs=jobs), plan.with_jobs(plans)


def _job_from(job: Job | TaskGraphJob, origin: int) -> Job | TaskGraphJob:
    deadline = None if job.deadline_us is None else job.deadline_us - origin
    return altered(job, release_us=max(0, job.release_us - origin), deadline_us=deadline)
