"""A phased plan of a changed instance from that of the old one; see ``docs/explain.md``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import InvalidInputError, OutOfTimeError
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import Phase, PhaseGroup, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.phased.past import BegunPhases, as_now, kept_jobs, past_at, past_problems
from jigsaw_opt.solvers.phased.phases import Gpus, Timing, phases_of
from jigsaw_opt.solvers.phased.policies import policies
from jigsaw_opt.solvers.phased.shelves import Place, Sharing, placed_shelves
from jigsaw_opt.solvers.phased.timer import PhaseTimer
from jigsaw_opt.solvers.resolve.fix import Fix, misplaced, problems
from jigsaw_opt.solvers.resolve.values import ends_us, objective_at, value_of
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import Opening, SolveState

_MOST = 4
"""Iterations of a job in a period where jobs that fit into memory together are found."""
_REST_SHARE = 0.5
"""Share of a time limit for plans on the old placements, where a plan from scratch may follow."""


@dataclass(frozen=True, slots=True)
class Continued(Opening):
    """Offers phased plans of a changed instance that go on from one of the old instance.

    Jobs are matched by name. The old plan is kept where that is still correct and nothing better is found. With a
    moment fixed, repetitions that have begun by then end as they were; a job that has begun keeps its GPUs.

    `fix`: parts of the old plan that stay.
    """

    plan: Plan
    fix: Fix
    phased: ClassVar[bool | None] = True
    lacks: ClassVar[tuple[str, ...]] = ("task_graphs",)

    @property
    def keeps(self) -> bool:
        """Return whether something is fixed."""
        return not self.fix.empty

    def offer(self, solve_state: SolveState) -> StoppedBy | None:
        """Offer plans on the old placements; return why the solve ends with them, where something is fixed."""
        operations, instance = solve_state.operations, solve_state.operations.instance
        past = past_at(instance, self.plan, self.fix.moment)
        _require_possible(operations, past, self.plan, self.fix)
        # A plan from scratch moves everything, so it is an answer only where nothing is fixed.
        share = 1.0 if self.keeps else _REST_SHARE
        work = _Work(solve_state, self.plan, past, self.fix, share)
        with suppress(OutOfTimeError):
            for placements in work.placings(operations):
                groups = work.planned(placements)
                if groups is not None and not _late_us(instance, groups):
                    solve_state.offer_phased(_as_plan(instance, groups))
        return (solve_state.reason() or StoppedBy.COMPLETED) if self.keeps else None


def _require_possible(operations: Operations, past: BegunPhases, plan: Plan, fix: Fix) -> None:
    """Refuse what is fixed and cannot hold, with all problems."""
    nothing = Plan.of_jobs(plan.instance, plan.instance_sha256, "feasible", 0, 0, None, ())
    found = [*problems(operations, nothing, fix), *past_problems(operations.instance, past, fix.placements)]
    if found:
        raise InvalidInputError(found)


def _as_plan(instance: Instance, groups: Sequence[PhaseGroup]) -> Plan:
    objective = objective_at(instance, ends_us([phase for group in groups for phase in group.phases]))
    document = instance.name, instance_sha256(instance)
    return Plan(*document, "feasible", objective, 0, tuple(groups), {"name": "phased"})


def _late_us(instance: Instance, groups: Sequence[PhaseGroup]) -> int:
    """Return how late jobs are in all, in microseconds."""
    jobs = {job.name: job for job in instance.data_parallel}
    return value_of(instance, jobs, [phase for group in groups for phase in group.phases])[0]


@dataclass(frozen=True, slots=True)
class _SharingJobs:
    """Jobs that share anything, and the old group that they go on with.

    `jobs`: with the iterations that are left, released no earlier than their GPUs are free. `old`: number of the only
    old group that has jobs here, None for none or several.
    """

    jobs: dict[str, Job]
    begun: tuple[Phase, ...]
    old: int | None

    @property
    def names(self) -> set[str]:
        """Return the names of its jobs, including those that have ended."""
        return {*self.jobs, *(job.name for phase in self.begun for job in phase.jobs)}


class _Work:
    """One re-solve under way."""

    def __init__(self, solve_state: SolveState, plan: Plan, past: BegunPhases, fix: Fix, share: float) -> None:
        instance = solve_state.operations.instance
        self._instance, self._plan, self._past, self._fix = instance, plan, past, fix
        self._jobs = {job.name: job for job in instance.data_parallel}
        done = past.done
        self._left = {name: past.left(job) for name, job in self._jobs.items() if done[name] < job.iterations}
        self._rest = altered(instance, jobs=tuple(self._left.values()))
        self._timer = PhaseTimer(solve_state, self._rest, share)

    def placings(self, operations: Operations) -> Iterator[Sharing]:
        """Yield jobs where they were with the new ones beside them, then all that have not begun placed anew."""
        fixed = {**self._fix.placements, **self._past.placements}
        graphs = {job.name: job for job in operations.jobs}
        old = {job.name: job.gpus for _, _, phase in self._plan.all_phases() for job in phase.jobs}
        still = {name: gpus for name, gpus in old.items() if name in graphs}
        still = {name: gpus for name, gpus in still.items() if not any(misplaced(operations, graphs[name], gpus))}
        # The second placing differs only if some job stays by choice rather than by force.
        for placements in [{**still, **fixed}, *([fixed] if still.keys() - fixed.keys() else [])]:
            found = self._placed(placements)
            if found is not None:
                yield found

    def _placed(self, placements: Mapping[str, Sequence[str]]) -> Sharing | None:
        """Return every job on its GPUs, those without any where there is least to do; None where that cannot be."""
        begun = [{job.name: job.gpus for phase in group for job in phase.jobs} for group in self._past.groups]
        sharing = Sharing(self._instance, [group for group in begun if group])
        for name, job in self._left.items():
            if name in placements and not sharing.add(job, placements[name]):
                return None
        new = [job for name, job in self._left.items() if name not in placements]
        return sharing if all(sharing.place(job) for job in sorted(new, key=lambda job: -job.workers)) else None

    def planned(self, sharing: Sharing) -> list[PhaseGroup] | None:
        """Return the best groups that are found with jobs on these GPUs; None where a group has none."""
        numbers = [g for g, group in enumerate(self._past.groups) if group]
        old = {job.name: g for g, _, phase in self._plan.all_phases() for job in phase.jobs}
        found, gone_on = [], set()
        for names, begun in sharing.groups():
            g = numbers[begun] if begun is not None else None
            # Old phases can be continued only where all jobs come from one group. Groups that were apart have no common
            # order of phases.
            olds = {old[name] for name in names if name in old} | ({g} if g is not None else set())
            free_us = self._past.moment if g is None else self._past.free_us(g)
            jobs = {name: self._left[name] for name in names}
            jobs = {
                name: altered(job, release_us=max(job.release_us, free_us, self._past.resumed_us(job)))
                for name, job in jobs.items()
            }
            phases = self._past.groups[g] if g is not None else ()
            part = _SharingJobs(jobs, phases, min(olds) if len(olds) == 1 else None)
            best = self._best(part, sharing.placements)
            if best is None:
                return None
            found.append(PhaseGroup(tuple(best)))
            gone_on.add(g)
        return [*(PhaseGroup(self._past.groups[g]) for g in numbers if g not in gone_on), *found]

    def _best(self, part: _SharingJobs, placements: Mapping[str, Sequence[str]]) -> list[Phase] | None:
        """Return the best correct phases of a group, as far as time goes."""
        own = altered(self._instance, jobs=tuple(job for job in self._instance.jobs if job.name in part.names))
        asked = {job.name: job for job in own.data_parallel}
        best, value = None, (math.inf, math.inf)
        self._timer.first = self._timer.is_over  # The first plan of a group is made even after the limit.
        with suppress(OutOfTimeError):
            for phases in self._candidates(part, placements):
                tried = value_of(own, asked, phases)
                if tried < value and not violations(own, _as_plan(own, [PhaseGroup(tuple(phases))])):
                    best, value = phases, tried
                    self._timer.first = False
        return best

    def _candidates(self, part: _SharingJobs, placements: Mapping[str, Sequence[str]]) -> Iterator[list[Phase]]:
        """Yield the old phases continued, then the phases of each policy."""
        timing: Timing = partial(self._timer.timed, ())
        placing = _placing(timing, placements)
        shelves = placed_shelves(self._rest, tuple(part.jobs.values()), placing, _MOST)
        if shelves is None:
            return
        if part.old is not None:
            yield self._gone_on(part, placements, shelves, timing)
        value = partial(value_of, self._instance, part.jobs)
        for policy in policies(part.jobs, shelves, timing, value, self._timer.deadline):
            yield [*part.begun, *phases_of(part.jobs, policy, timing)]

    def _gone_on(
        self, part: _SharingJobs, placements: Mapping[str, Sequence[str]], shelves: Sequence[Plan], timing: Timing
    ) -> list[Phase]:
        """Return the old phases of a group as far as they hold, then what they leave by the first policy."""
        assert part.old is not None
        left = {name: self._jobs[name].iterations for name in part.names}
        phases: list[Phase] = []
        for number, old in enumerate(self._plan.groups[part.old].phases):
            begun = part.begun[number] if number < len(part.begun) else None
            phase = self._still(old, placements, left, begun, phases[-1].end_us if phases else 0)
            if phase is not None:
                phases.append(phase)
                for job in phase.jobs:
                    left[job.name] -= phase.count * len(job.iterations)
        end_us = phases[-1].end_us if phases else 0
        rest = {
            name: altered(job, iterations=left[name], release_us=max(job.release_us, end_us))
            for name, job in part.jobs.items()
            if left[name]
        }
        if not rest:
            return phases
        first = next(policies(rest, shelves, timing, partial(value_of, self._instance, rest), self._timer.deadline))
        return [*phases, *phases_of(rest, first, timing)]

    def _still(
        self,
        old: Phase,
        placements: Mapping[str, Sequence[str]],
        left: Mapping[str, int],
        begun: Phase | None,
        free_us: int,
    ) -> Phase | None:
        """Return an old phase with the jobs that still have iterations left for it.

        What has begun of it always stays.
        """
        kept = kept_jobs(self._instance, old)
        if begun is None:
            there = (
                job
                for job in kept.jobs
                if len(job.iterations) <= left.get(job.name, 0) and placements.get(job.name) == job.gpus
            )
            kept = replace(kept, jobs=tuple(there))
        phase = as_now(self._instance, kept) if kept.jobs else None
        if phase is None:
            return begun
        # A job may have fewer iterations now than in the old plan.
        repeats = min(phase.count, *(left[job.name] // len(job.iterations) for job in phase.jobs))
        if begun is not None:
            return replace(phase, repeats=max(begun.count, repeats))
        released = (self._jobs[job.name].release_us - job.start_us for job in phase.jobs)
        start_us = max(phase.start_us, free_us, self._past.moment, *released)
        return replace(phase, start_us=start_us, repeats=repeats)


def _placing(timing: Timing, gpus: Gpus) -> Place:
    """Return a function that makes cyclic plans of jobs on their GPUs; None where memory is too small for them."""

    def place(part: Instance) -> Plan | None:
        try:
            return timing({job.name: job.iterations for job in part.jobs}, gpus)
        except OutOfTimeError:
            return None

    return place
