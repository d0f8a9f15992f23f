"""Jobs come and go while a plan is carried out: each solve goes on from the plan before; see ``docs/library.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Unpack

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents import add_job
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, unsupported, wrong_input
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.options import GivenOptions, Options, options_of
from jigsaw_opt.solvers.resolve import Fix, placements_of
from jigsaw_opt.solvers.resolve.fix import has_begun
from jigsaw_opt.solvers.resolve.remaining import in_progress_at, shifted_jobs
from jigsaw_opt.solvers.result import Report, Result
from jigsaw_opt.solvers.solve import solve


class Session:
    """An instance whose jobs come and go, and the plan that is carried out.

    Each solve goes on from the plan before. As time goes on, what has ended is forgotten, so a solve costs what is left
    costs, however long the session has lasted. It is for one thread at a time.

    Parameters
    ----------
    instance
        What there is at first, of data-parallel jobs only. Its time 0 is that of the session.
    plan
        A plan of it that is carried out already; None for none.

    Attributes
    ----------
    instance
        What is left. Its time 0 is at `origin_us`; it may have no jobs.
    origin_us
        Time of the session, in microseconds, that the instance and plans of it count from: no later than now, and
        earlier where an iteration is under way, or ended ones still say which memory a job holds.
    now_us
        Time of the session, in microseconds: what starts earlier stays as it was planned.

    Raises
    ------
    UsageError
        Some job has a task graph, or an argument is of another type.
    """

    @typed
    def __init__(self, instance: Instance, plan: Plan | None = None) -> None:
        if instance.task_graph_jobs:
            raise unsupported(
                "instance",
                f"a session takes data-parallel jobs only; job {instance.task_graph_jobs[0].name!r} has a task graph",
            )
        self.instance, self._plan = instance, plan
        self.origin_us = self.now_us = 0
        self._begun: set[str] = set()

    @property
    def fix(self) -> Fix:
        """Return what of the last plan stays: what has started, and the GPUs of jobs that have begun."""
        if self._plan is None or self.instance.horizon == "cyclic":
            return Fix()
        begun = {job.name for job in self._plan.data_parallel} & self._begun
        return Fix(placements_of(self._plan, sorted(begun)), self.now_us - self.origin_us)

    @typed
    def add(self, job: Job, models: Mapping[str, Model] | None = None) -> None:
        """Take a job in.

        Parameters
        ----------
        job
            Its release and deadline are times of the session.
        models
            Models that it needs and the instance lacks.

        Raises
        ------
        InvalidInputError
            The instance with it is invalid; nothing has changed then.
        """
        release = max(0, job.release_us - self.origin_us)
        deadline = None if job.deadline_us is None else job.deadline_us - self.origin_us
        self.instance = add_job(self.instance, replace(job, release_us=release, deadline_us=deadline), models)

    @typed
    def remove(self, name: str) -> None:
        """Forget a job, also one that has begun: its GPUs are free from now on.

        Raises
        ------
        InvalidInputError
            There is no such job.
        """
        left = tuple(job for job in self.instance.jobs if job.name != name)
        if len(left) == len(self.instance.jobs):
            raise wrong_input("$.jobs", f'no job is called "{name}"', code="unknown-name")
        self.instance = altered(self.instance, jobs=left)
        self._begun.discard(name)
        if self._plan is not None:
            self._plan = self._plan.with_jobs(tuple(job for job in self._plan.jobs if job.name != name))

    @typed
    def advance(self, now_us: int) -> tuple[str, ...]:
        """Let the plan be carried out until a time; return the jobs that have ended by then.

        Parameters
        ----------
        now_us
            Time of the session.

        Raises
        ------
        UsageError
            Time goes back, the horizon is cyclic, where plans have no past, or the cluster has power caps.
        """
        if self.instance.horizon == "cyclic":
            raise UsageError(
                "a plan on a cyclic horizon has no past: time does not go on in its session", code="unsupported"
            )
        cut = self.instance.beyond(("power_caps", "held_capacities"))
        if cut is not None:
            raise unsupported("instance", f"nothing before a moment is kept in instance {self.instance.name!r}: {cut}")
        if now_us < self.now_us:
            raise UsageError(f"time does not go back from {self.now_us} to {now_us}", code="wrong-order", path="now_us")
        before = {job.name for job in self.instance.jobs}
        plan, moment = self._plan, now_us - self.origin_us
        if plan is None:
            plan = Plan.of_jobs(self.instance.name, "", "feasible", 0, 0, None, ())
        self._begun |= {job.name for job in plan.data_parallel if has_begun(job, moment)}
        self.instance, plan = in_progress_at(self.instance, plan, moment)
        origin = min(moment, *(job.start_us for job in plan.data_parallel)) if plan.jobs else moment
        self.instance, plan = shifted_jobs(self.instance, plan, origin)
        self._plan = None if self._plan is None else plan
        self.origin_us, self.now_us = self.origin_us + origin, now_us
        return tuple(sorted(before - {job.name for job in self.instance.jobs}))

    def solve(
        self, options: Options | None = None, *, on_event: Report | None = None, **option: Unpack[GivenOptions]
    ) -> Result:
        """Return a plan of what is left: by `solve` with ``auto``, from the plan before where there is one.

        Parameters
        ----------
        options, on_event, **option
            As in `solve`.

        Returns
        -------
        Result
            Times of its plan count from `origin_us`. Without a plan the one before stays.

        Raises
        ------
        JigsawError
            As `solve` does. Where no job is left, or the deadline of one has passed, it is an `InvalidInputError`.
        """
        if not self.instance.jobs:
            raise wrong_input("$.jobs", "no job is left in the session; add one", code="wrong-count")
        passed = [problem for job in self.instance.data_parallel for problem in self._passed(job)]
        if passed:
            raise InvalidInputError(passed)
        asked = replace(options_of(options, option), listed=True)  # A phased plan has no past.
        result = solve(self.instance, "auto", asked, start=self._plan, fix=self.fix, on_event=on_event)
        self._plan = result.plan or self._plan
        return result

    def _passed(self, job: Job) -> Iterator[Problem]:
        """Yield the deadline of a job that has not ended, if it is not after now."""
        deadline = None if job.deadline_us is None else job.deadline_us + self.origin_us
        if deadline is not None and deadline <= self.now_us:
            told = f"the deadline of this job, {deadline:,} us, has passed: it is {self.now_us:,} us in the session"
            hint = "remove the job, or remove it and add it again with a later deadline_us"
            yield Problem(f'$.jobs["{job.name}"].deadline_us', told, hint, code="out-of-range")
