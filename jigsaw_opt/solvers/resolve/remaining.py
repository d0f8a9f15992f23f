"""What is left of an instance and of its plan at a moment: iterations that have ended are done."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Iteration as WorkerIteration
from jigsaw_opt.problem.plan import JobPlan, Plan, ShapedIteration, ShapedJobPlan
from jigsaw_opt.problem.timetable import job_end

__all__ = ["RemainingWork", "remaining_at"]


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
    return RemainingWork(replace(instance, jobs=jobs), replace(plan, jobs=tuple(lasting.values())), ended, done)


def _lasting(job: JobPlan | ShapedJobPlan, moment: int) -> JobPlan | ShapedJobPlan:
    """The plan of a job from its first iteration that has not ended."""
    if isinstance(job, JobPlan):
        return replace(job, iterations=job.iterations[_done(job.iterations, moment) :])
    return replace(job, iterations=job.iterations[_done(job.iterations, moment) :])


def _done(iterations: tuple[WorkerIteration, ...] | tuple[ShapedIteration, ...], moment: int) -> int:
    """How many iterations have ended; they end in their order."""
    return sum(all(it.end_us <= moment for it in (*own.blocks, *own.transfers)) for own in iterations)
