"""Cyclic plans of shelves and phases within the limits of time and work, each of them made once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from math import inf
from typing import TypeAlias

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import clock
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased.cyclic_plans import time_placed
from jigsaw_opt.solvers.phased.phases import Gpus
from jigsaw_opt.solvers.phased.shelves import cyclic_part
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.run import run
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.solvers.solve_state.request import Request

_LEAST_SECONDS = 1.0
"""Seconds for a placement or cyclic plan without which a group has no phases, where the limit's grace allows it."""
_INSTANT = 0.001
"""Least limit of a part, in seconds: what is left may be less than nothing, which no limit may be."""
_PLACING_SHARE = 0.25
"""Share of what may be worked for a placement that it gets, and counts as a whole, used or not."""
_LEAST_WORK = 0.001
"""Least work of a part, in deterministic units, so that parts come to an end."""
_ANY = 2**62
"""Period with which any cyclic plan is good enough."""


class UntimedError(OutOfTimeError):
    """No cyclic plan was found of jobs on the GPUs that they have, time or not."""


_Key: TypeAlias = tuple[tuple[str, int, tuple[str, ...]], ...]


class PhaseTimer:
    """Makes cyclic plans.

    `solve_state`: the solve, which says when the time is over. `first`: whether there is no phased plan yet. Until
    then the first cyclic plan of a phase is taken, and where there is none the limit may be passed by its grace.
    `instance`: the jobs as they are to be timed; None for those of the solve. `share`: share of the time limit.
    """

    def __init__(self, solve_state: SolveState, instance: Instance | None = None, share: float = 1.0) -> None:
        self._solve_state, self._options = solve_state, solve_state.options
        self._instance = instance or solve_state.operations.instance
        limit, work = self._options.time_limit, self._options.work_limit
        self._end = inf if limit is None else solve_state.started + share * limit
        self._kept_work = (1 - share) * (work or 0.0)
        self._known: dict[_Key, Plan] = {}
        self._ended: set[_Key] = set()
        self.first = True

    @property
    def _left(self) -> tuple[float, float]:
        """Return the seconds of the clock and the units of work that are left; infinite without a limit."""
        work = self._solve_state.options.work_limit
        return self._end - time.monotonic(), inf if work is None else work - self._kept_work

    @property
    def is_over(self) -> bool:
        """Return whether its time is over, or there is another reason to stop."""
        return min(self._left) <= 0 or self._solve_state.reason() is not None

    def spend(self, work: float) -> None:
        """Count work in deterministic units."""
        self._solve_state.spend(work)

    def deadline(self, share: float) -> Callable[[], bool]:
        """Return a function that tells whether a share of what is left now of the time and of the work is used up."""
        # What is left then is fixed here: computed at each call, a share of it would never be used up.
        ends = [(1 - share) * left if left < inf else -inf for left in self._left]
        return lambda: (
            self._options.cancel.is_set() or any(left <= end for left, end in zip(self._left, ends, strict=True))
        )

    def limited(self, share: float) -> AbstractContextManager[None]:
        """Return a context in which a share of the time that is left now is the limit."""
        return clock.limited(clock.Clock(share * self._left[0], self._options.cancel))

    def patience(self, share: float) -> Callable[[], bool]:
        """Return a function that tells whether the time is over.

        While there is no phased plan yet, a share of the time that is left now counts instead.
        """
        late = self.deadline(share)
        return lambda: self.is_over or (self.first and late())

    def placed(self, solver: str, share: float, part: Instance, turn: int = 0) -> Plan | None:
        """Return a cyclic plan of some jobs, on any GPUs, within their part of a share of the time that is left.

        `share`: share of the time that all jobs together may take.
        """
        self._require_time()
        # Placing halves the jobs where they do not fit together. By number of jobs, the shares of all halves of one
        # depth add up to one.
        own = len(part.jobs) / len(self._instance.jobs)
        within = self._within(share * own)
        work = None if within.work_limit is None else _PLACING_SHARE * within.work_limit
        self.spend(work or 0.0)
        return run(Request(part, replace(within, seed=(within.seed + turn) % 2**31, work_limit=work)), solver).plan

    def timed(self, shelves: Sequence[Plan], counts: Mapping[str, int], gpus: Gpus) -> Plan:
        """Return a cyclic plan of jobs that run together.

        `shelves`: plans that have the jobs where they are, as far as there are any.
        """
        self._require_time()
        # A cyclic plan depends on nothing else, so the same phase of another policy costs nothing.
        key = tuple((name, counts[name], tuple(gpus[name])) for name in sorted(counts))
        part, own = cyclic_part(self._instance, counts), {name: gpus[name] for name in counts}
        plan = self._known.get(key) or self._first(part, own, _as_placed(shelves, counts))
        if plan is None:
            raise UntimedError("no time was left for the cyclic plan of a phase")
        if not (self.first or key in self._ended or self.is_over):
            plan = self._improved(part, own, plan, key)
        self._known[key] = plan
        return plan

    def _first(self, part: Instance, gpus: Gpus, known: Timetable | None) -> Plan | None:
        """Return any cyclic plan."""
        # With a target that every plan reaches, the solve ends at its first plan.
        found = self._made(part, gpus, known, replace(self._within(1.0), target=_ANY))
        return None if found is None else found.plan

    def _improved(self, part: Instance, gpus: Gpus, plan: Plan, key: _Key) -> Plan:
        """Return the best cyclic plan that annealing finds from one, in a share of the time: other phases wait, too."""
        counts = {job.name: len(job.iterations) for job in plan.jobs}
        found = self._made(part, gpus, _as_placed([plan], counts), self._within(1 / len(self._instance.jobs)))
        if found is None or found.plan is None:
            return plan
        # Another try is worth its time only where the clock cut off a search that was still gaining.
        if found.stopped_by is not StoppedBy.TIME or found.plan.objective >= plan.objective:
            self._ended.add(key)
        return found.plan

    def _made(self, part: Instance, gpus: Gpus, known: Timetable | None, options: Options) -> Result | None:
        """Return the result of a timing, to be checked with the whole plan; None where the time was over before."""
        with clock.limited(clock.Clock(options.time_limit, options.cancel)), suppress(OutOfTimeError):
            # Made here, it counts its time from now on.
            solve_state = SolveState("timing", compile_instance(part), options, lambda _: None)
            result = time_placed(solve_state, gpus, known)
            self.spend(_LEAST_WORK + (options.work_limit or 0.0) - (solve_state.options.work_limit or 0.0))
            return result
        return None

    def _require_time(self) -> None:
        """Raise `OutOfTimeError` where the limit and its grace are over; work does not end before a first plan.

        There may be as many parts and phases as jobs, and each takes a little time.
        """
        seconds, work = self._left
        if seconds < -self._options.grace or (work <= 0 and not self.first):
            raise OutOfTimeError("no time was left for all phases")

    def _within(self, share: float) -> Options:
        asked = self._options
        seconds, work = (share * left for left in self._left)
        if self.first:
            # Without any phased plan, all the time before would be lost. A part may then use the grace of the limit
            # too.
            seconds = max(seconds, min(share * _LEAST_SECONDS, self._left[0] + asked.grace))
        return Options(
            time_limit=None if seconds == inf else max(seconds, _INSTANT),
            work_limit=None if work == inf else max(work, _LEAST_WORK),
            seed=asked.seed,
            threads=asked.threads,
            cancel=asked.cancel,
        )


def _as_placed(shelves: Sequence[Plan], counts: Mapping[str, int]) -> Timetable | None:
    """Return the timetable of a shelf that has these jobs with so many iterations, with or without others."""
    for plan in shelves:
        same = [job for job in plan.jobs if counts.get(job.name) == len(job.iterations)]
        if len(same) == len(counts):
            return Timetable.of(same, plan.period_us)
    return None
