"""What is left of an instance and of its plan at a moment: iterations that have ended are done, and forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.plan import Iteration as WorkerIteration
from jigsaw_opt.problem.plan import JobPlan, Plan, ShapedIteration, ShapedJobPlan
from jigsaw_opt.problem.shape import ShapedJob
from jigsaw_opt.problem.timetable import job_end

__all__ = ["RemainingWork", "in_progress_at", "remaining_at", "shifted_jobs"]


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """What is left at a moment.

    Parameters
    ----------
    instance
        The jobs with the iterations that are left, released no earlier than the moment. Times stay absolute.
    plan
        The plan of these iterations as it was: its order counts, its times are too early where an iteration was under
        way.
    ended
        By name of a job that has ended, when it did, in microseconds.
    done
        Makespan or weighted completion of those.
    """

    instance: Instance
    plan: Plan
    ended: dict[str, int]
    done: int

    def total(self, objective: int | None) -> int | None:
        """Objective of all jobs, where the rest has an objective."""
        if objective is None:
            return None
        return max(self.done, objective) if self.instance.objective == "makespan" else self.done + objective


def remaining_at(instance: Instance, plan: Plan, moment: int) -> RemainingWork:
    """What is left of a plan on a finite horizon at a moment.

    An iteration counts as done where all of it has ended by then. One under way is lost, and done again.

    Parameters
    ----------
    instance, plan
        A plan that `jigsaw_opt.checking.check` accepts for the instance.
    moment
        In microseconds, at least 0.

    Raises
    ------
    InvalidInputError
        The horizon is cyclic, the moment is negative, or all jobs have ended by then; with all problems.
    """
    problems = []
    if instance.horizon == "cyclic":
        problems.append(Problem("$.horizon", "a cyclic plan has no moment at which something fails"))
    if moment < 0:
        problems.append(Problem("moment", f"must be at least 0; is {moment}"))
    ends = {job.name: job_end(job) for job in plan.jobs}
    if not problems and max(ends.values()) <= moment:
        problems.append(Problem("moment", f"all jobs have ended by {max(ends.values())}; is {moment}"))
    if problems:
        raise InvalidInputError(problems)
    ended = {name: end for name, end in ends.items() if end <= moment}
    lasting = {job.name: _lasting(job, moment) for job in plan.jobs if job.name not in ended}
    jobs = tuple(
        replace(job, iterations=len(lasting[job.name].iterations), release_us=max(job.release_us, moment))
        for job in instance.jobs
        if job.name in lasting
    )
    weights = {job.name: job.weight for job in instance.jobs}
    weighted = sum(weights[name] * end for name, end in ended.items())
    done = max(ended.values(), default=0) if instance.objective == "makespan" else weighted
    return RemainingWork(replace(instance, jobs=jobs), plan.with_jobs(tuple(lasting.values())), ended, done)


def in_progress_at(instance: Instance, plan: Plan, moment: int) -> tuple[Instance, Plan]:
    """What is left of a plan on a finite horizon at a moment at which all goes on, with the times of the plan.

    Jobs and iterations that have ended are left out, and with them jobs of the plan that the instance lacks. Jobs whose
    depth rule looks at all of their iterations keep all of them until they end. Jobs that the plan lacks stay as they
    are. There may be no job left.

    Parameters
    ----------
    instance, plan
        The plan keeps to the rules of the instance as far as they have the same jobs.
    moment
        In microseconds, at least 0.
    """
    known = {job.name: job for job in plan.data_parallel}
    jobs: list[Job] = []
    lasting: list[JobPlan] = []
    for job in instance.data_parallel:
        old = known.get(job.name)
        if old is None:
            jobs.append(job)
        elif job_end(old) > moment:
            done = _done(old.iterations, moment)
            rest = replace(job, iterations=job.iterations - done)
            if not _forgetful(job, rest, instance.models[job.model]):
                rest, done = job, 0
            jobs.append(rest)
            lasting.append(replace(old, iterations=old.iterations[done:]))
    return replace(instance, jobs=tuple(jobs)), plan.with_jobs(tuple(lasting))


def _forgetful(job: Job, rest: Job, model: Model) -> bool:
    """Whether the depth rule asks the same of the rest of a job, whatever the levels of its first iterations were."""
    whole, left = (it.depth.limits(it.workers, model.depth, it.iterations) for it in (job, rest))
    return whole.multiset is not None and whole.multiset == left.multiset


def shifted_jobs(instance: Instance, plan: Plan, origin: int) -> tuple[Instance, Plan]:
    """The same on a finite horizon with time counted from `origin`, in microseconds; releases before it are 0."""
    jobs = tuple(_job_from(job, origin) for job in instance.jobs)
    plans = tuple(_plan_from(job, origin) for job in plan.data_parallel)
    return replace(instance, jobs=jobs), plan.with_jobs(plans)


def _job_from(job: Job | ShapedJob, origin: int) -> Job | ShapedJob:
    deadline = None if job.deadline_us is None else job.deadline_us - origin
    return replace(job, release_us=max(0, job.release_us - origin), deadline_us=deadline)


def _plan_from(job: JobPlan, origin: int) -> JobPlan:
    iterations = (
        replace(
            it,
            blocks=tuple(replace(b, start_us=b.start_us - origin, end_us=b.end_us - origin) for b in it.blocks),
            transfers=tuple(replace(t, start_us=t.start_us - origin, end_us=t.end_us - origin) for t in it.transfers),
        )
        for it in job.iterations
    )
    return replace(job, iterations=tuple(iterations))


def _lasting(job: JobPlan | ShapedJobPlan, moment: int) -> JobPlan | ShapedJobPlan:
    """The plan of a job from its first iteration that has not ended."""
    if isinstance(job, JobPlan):
        return replace(job, iterations=job.iterations[_done(job.iterations, moment) :])
    return replace(job, iterations=job.iterations[_done(job.iterations, moment) :])


def _done(iterations: tuple[WorkerIteration, ...] | tuple[ShapedIteration, ...], moment: int) -> int:
    """How many iterations have ended; they end in their order."""
    return sum(all(it.end_us <= moment for it in (*own.blocks, *own.transfers)) for own in iterations)
