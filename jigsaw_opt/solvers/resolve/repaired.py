"""A plan of another instance as a start: repaired, then improved."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble, decisions_of, objective_of
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.greedy.heuristic import placements, require_size
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import Layout, demands
from jigsaw_opt.solvers.resolve.carried import CarriedPlan
from jigsaw_opt.solvers.resolve.cyclic_insertion import reinserted, repaired
from jigsaw_opt.solvers.resolve.finite_insertion import FiniteInsertion
from jigsaw_opt.solvers.resolve.fix import Fix, has_begun, misplaced, problems, same_shape
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder, timetable_in
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import SolveState


def carried(operations: Operations, plan: Plan, fix: Fix) -> dict[int, JobPlan]:
    """Return, by number of a job in the changed instance, its old plan with the new durations.

    Jobs are matched by name. On a finite horizon they are timed anew in their old order. Those whose operations break a
    rule now, alone or with others, are left out: the checker says which.
    """
    if (plan.period_us is None) != (operations.horizon == "finite"):
        return {}
    old = {job.name: job for job in plan.data_parallel}
    chosen = [
        index
        for index, job in enumerate(operations.jobs)
        if (found := old.get(job.name)) is not None
        and same_shape(job, found)
        and not any(misplaced(operations, job, found.gpus))
        and tuple(fix.placements.get(job.name, found.gpus)) == found.gpus
    ]
    while chosen:
        part = _part(operations, chosen)
        jobs, stirred = _now(part, [old[job.name] for job in part.jobs], fix.moment)
        broken = stirred or _broken(part, jobs, plan.period_us)
        if not broken:
            return dict(zip(chosen, jobs, strict=True))
        chosen = [index for at, index in enumerate(chosen) if at not in broken]
    return {}


def _part(operations: Operations, chosen: Sequence[int]) -> Operations:
    """Return the instance with some of its jobs."""
    instance = altered(operations.instance, jobs=tuple(operations.instance.jobs[index] for index in chosen))
    part = replace(operations, instance=instance, jobs=tuple(operations.jobs[index] for index in chosen))
    return part.with_routes(operations.routes)


def _now(part: Operations, old: Sequence[JobPlan], moment: int) -> tuple[tuple[JobPlan, ...], set[int]]:
    """Return old plans of all jobs with the new durations, and the jobs that have started something at another time.

    On the finite horizon each operation is as early as the old order permits. Where durations have not grown nothing
    then starts later than it did. What starts after the moment stays after it.
    """
    if part.horizon == "cyclic":
        return assemble(part, decisions_of(part, old)), set()
    order = KeptOrder(part, Timetable(tuple(old)))
    flat, starts = order.flat, order.starts
    released = [
        start if start < moment else max(release, moment)
        for start, release in zip(starts, flat.release_us, strict=True)
    ]
    timing = order.timed_as(flat._replace(release_us=released))
    assert timing is not None, "the order of a finite plan has no circuit"
    pairs = enumerate(zip(starts, timing.starts, strict=True))
    stirred = {flat.job[number] for number, (start, now) in pairs if start < moment and start != now}
    return order.timetable(timing, (), part.routes)[1].jobs, stirred


def _broken(part: Operations, jobs: tuple[JobPlan, ...], period: int | None) -> set[int]:
    """Return the positions of the jobs that the checker names."""
    instance = part.instance
    value = objective_of(part, jobs, period)
    alone = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, period, jobs)
    named = [re.match(r"\$\.jobs\[(\d+)\]", violation.path) for violation in violations(instance, alone)]
    return {int(found[1]) for found in named if found is not None}


_PATIENCE = 50
"""Fruitless steps after which an improvement without any limit ends."""
_IMPROVEMENT_SHARE = 0.3
"""Share of the limits of time and work after which the search goes on, where nothing is fixed."""
_ORDERS = 20
"""Orders in which all jobs are inserted anew where the old plan leaves some no room."""
_ROOM_TRIES = 50
"""Tries of ruin and recreate for the jobs of an order that found no room; then another order does better."""
_PLACES_A_STEP, _WORK_OF_OPERATION = 10, 1e-6
"""Places tried for a job, and deterministic seconds that inserting an operation counts as."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """Offers the plan of another instance, repaired, and goes on from it as what is asked of it permits.

    Jobs are matched by name. Those whose operations still keep to all rules stay as they lie at first; the others are
    inserted into the gaps. `fix`: parts of the old plan that stay. `improves`: whether an improvement follows, short
    where nothing limits the solve.
    """

    plan: Plan
    fix: Fix
    improves: bool
    phased: ClassVar[bool | None] = False
    from_phases: ClassVar[bool] = False

    @property
    def keeps(self) -> bool:
        """Return whether something is fixed."""
        return not self.fix.empty

    def offer(self, solve_state: SolveState) -> StoppedBy | None:
        """Offer the repaired plan and better ones; return why the solve ends with them, if it does."""
        operations = solve_state.operations
        require_size(operations)
        plan = self.plan.with_jobs(_known(operations, self.plan).plans)
        found = tuple(problems(operations, plan, self.fix))
        if found:
            raise InvalidInputError(found)
        return _Resolving(solve_state, operations, plan, self.fix).repair(self.improves)


def _known(operations: Operations, plan: Plan) -> Timetable:
    """Return the jobs of a plan that have the name and kind of one of the instance."""
    old = timetable_in(plan)
    own, graphs = {job.name for job in operations.jobs}, {graph.job.name for graph in operations.task_graphs}
    jobs = tuple(job for job in old.jobs if job.name in own)
    return replace(old, jobs=jobs, task_graph_jobs=tuple(job for job in old.task_graph_jobs if job.name in graphs))


class _Resolving:
    """One repair under way."""

    def __init__(self, solve_state: SolveState, operations: Operations, plan: Plan, fix: Fix) -> None:
        self.solve_state, self.operations, self.plan, self.fix = solve_state, operations, plan, fix
        self.rng = random.Random(solve_state.options.seed)
        self.begun = {job.name for job in plan.jobs if has_begun(job, fix.moment)}
        self.work = 0.0

    def repair(self, improves: bool) -> StoppedBy | None:
        """Offer the old plan with as few changes as its jobs need and better ones; return why the solve ends."""
        if self.operations.needs_network:
            return self._carry_over() or self._going_on(improves)
        asked = demands(self.operations)
        if asked is None:
            return StoppedBy.COMPLETED
        now = replace(self.operations, jobs=tuple(self._released(job) for job in self.operations.jobs))
        # A job enters where its memory fits from then on.
        self.data = ProblemData(now, demands(now) or asked, Layout(now, in_time=now.has_scarce_memory))
        number = self.data.number
        index_of = {job.name: index for index, job in enumerate(now.jobs)}
        self.fixed = {index_of[job]: [number[gpu] for gpu in gpus] for job, gpus in self.fix.placements.items()}
        kept = carried(self.operations, self.plan, self.fix)
        cyclic = now.horizon == "cyclic"
        ended = self._on_cyclic_horizon(kept) if cyclic else self._on_finite_horizon(kept, improves)
        return ended or self._going_on(improves)

    def _carry_over(self) -> StoppedBy | None:
        """Offer what keeps most of the old plan, as far as it is correct; return why the solve ends, if it does."""
        operations, instance = self.operations, self.operations.instance
        digest = instance_sha256(instance)
        carried = CarriedPlan(operations, timetable_in(self.plan), self.fix.placements, self.solve_state.options.seed)
        for timetables in carried.parts():
            for timetable in timetables:
                self.work += (operations.blocks + operations.transfers) * _WORK_OF_OPERATION
                jobs, period = timetable.plans_of(instance), timetable.period_us
                value = objective_of(operations, timetable.jobs, period, timetable.task_graph_jobs)
                known = self.solve_state.objective
                if (known is None or value < known) and not violations(
                    instance, Plan.of_jobs(instance.name, digest, "feasible", value, 0, period, jobs)
                ):
                    self.solve_state.offer(timetable)
                if (reason := self._reason()) is not None:
                    return reason
            if self.solve_state.objective is not None:
                break
        return None

    def _going_on(self, improves: bool) -> StoppedBy | None:
        """Return that the solve ends: what is fixed stays, or there is a plan and no limit to use up; or None."""
        options = self.solve_state.options
        wanted = self._limited or options.gap is not None or options.target is not None
        if not self.fix.empty or (improves and self.solve_state.objective is not None and not wanted):
            return StoppedBy.COMPLETED
        self.solve_state.spend(self.work)
        return None

    def _released(self, job: OperationGraph) -> OperationGraph:
        """Return a job that starts no earlier than the moment, unless it has begun."""
        return job if job.name in self.begun else replace(job, release_us=max(job.release_us, self.fix.moment))

    def _on_finite_horizon(self, kept: Mapping[int, JobPlan], improving: bool) -> StoppedBy | None:
        insertion = self._insertion()
        unassigned = []
        for index in range(len(self.operations.jobs)):
            scheduled = insertion.schedule.read(index, kept[index]) if index in kept else None
            if scheduled is not None and insertion.schedule.admits(scheduled):
                insertion.schedule.add(index, scheduled)
            else:
                unassigned.append(index)
        found = insertion if self._insert(insertion, self._by_work(unassigned)) else self._anew()
        if found is None:
            return None if self.fix.empty else self._reason() or StoppedBy.COMPLETED
        self.solve_state.offer(found.schedule.timetable())
        return self._improve(found, unassigned) if improving else None

    def _insertion(self) -> FiniteInsertion:
        """Return a schedule that holds what has started."""
        schedule = PartialSchedule(self.data, None, self.fix.moment)
        clashes = []
        jobs = {job.name: index for index, job in enumerate(self.operations.jobs)}
        for old in self.plan.data_parallel:
            if old.name not in self.begun or old.name not in jobs:
                continue
            index = jobs[old.name]
            place, scheduled = f'$.before_us: job "{old.name}"', schedule.read(index, old)
            if not schedule.freeze(index, scheduled):
                clashes.append(
                    Problem(
                        place, "what it has started overlaps something with the durations of now", code="broken-rule"
                    )
                )
            elif schedule.inserted(index, scheduled.assignment, self.operations.jobs[index].release_us, None) is None:
                clashes.append(
                    Problem(place, "what it has started breaks an order with the durations of now", code="broken-rule")
                )
        clashes += self._crowded(schedule)
        if clashes:
            raise InvalidInputError(clashes)
        return FiniteInsertion(schedule, self.fixed, self.rng)

    def _crowded(self, schedule: PartialSchedule) -> Iterator[Problem]:
        """Yield the jobs that have begun and, whatever follows, are in memory with more than it holds."""
        moment, number = self.fix.moment, self.data.layout.gpus
        begun: dict[int, list[tuple[int, int, int, int]]] = {}
        for index, frozen in enumerate(schedule.frozen):
            if frozen is None:
                continue
            own, job = frozen.scheduled, self.operations.jobs[index]
            # What it has started keeps its levels, and a job that has not ended is there at the moment.
            rows = [row for row, starts in zip(own.levels, own.blocks, strict=True) if min(starts) < moment]
            for gpu, column in zip(own.assignment.gpus, zip(*rows, strict=True), strict=True):
                taken = own.start, min(own.end, moment + 1), job.state_bytes, job.activation_bytes[max(column) - 1]
                begun.setdefault(gpu, []).append(taken)
        for gpu, jobs in begun.items():
            for at in sorted({start for start, *_ in jobs}):
                need = needed_bytes((size, most) for start, end, size, most in jobs if start <= at < end)
                if need > self.data.layout.memory[gpu]:
                    name = self.operations.cluster.gpu_name(*number[gpu])
                    told = f"what has started needs {need:,} bytes on GPU {name} at {at}, which has less"
                    yield Problem("$.before_us", told, code="broken-rule")
                    break

    def _insert(self, insertion: FiniteInsertion, unassigned: Sequence[int]) -> bool:
        """Insert the unassigned jobs; return whether all found room."""
        left = [index for index in unassigned if not self._counted(insertion.insert(index), index)]
        for _ in range(_ROOM_TRIES if left else 0):
            if self._reason() is not None:
                break
            index = self.rng.choice(left)
            if self._counted(insertion.ruin_and_recreate(index), index):
                left.remove(index)
                if not left:
                    break
        return not left

    def _anew(self) -> FiniteInsertion | None:
        """Insert all jobs anew, what is fixed first; return None where no order tried leaves all of them room."""
        for _ in range(_ORDERS):
            insertion, order = self._insertion(), list(range(len(self.operations.jobs)))
            self.rng.shuffle(order)
            if self._insert(insertion, self._by_work(order)):
                return insertion
            if self._reason() is not None:
                break
        return None

    def _by_work(self, jobs: Iterable[int]) -> list[int]:
        """Return jobs that are bound to their GPUs first, then the longest."""

        def key(index: int) -> tuple[bool, int]:
            bound = index in self.fixed or self.operations.jobs[index].name in self.begun
            return not bound, -max(self.data.demands[index].slot_us.values())

        return sorted(jobs, key=key)

    def _improve(self, insertion: FiniteInsertion, changed: Sequence[int]) -> StoppedBy | None:
        """Ruin and recreate around the changed jobs and what ends last; with a limit and a fix until that limit."""
        idle = 0
        patience = math.inf if self._limited and not self.fix.empty else _PATIENCE
        while (reason := self._reason()) is None and idle < patience and not (self.fix.empty and self._improved_enough):
            first = self.rng.choice(changed) if changed and self.rng.random() < 0.3 else insertion.last()
            idle = 0 if self._counted(insertion.step(first), first) else idle + 1
            if self.solve_state.objective is not None and insertion.value < self.solve_state.objective:
                self.solve_state.offer(insertion.schedule.timetable())
        return reason

    def _on_cyclic_horizon(self, kept: Mapping[int, JobPlan]) -> StoppedBy | None:
        period = self.plan.period_us
        if period is not None:
            schedule = PartialSchedule(self.data, period)
            scheduled = {index: schedule.read(index, job) for index, job in kept.items()}
            old_gpus = self._old_gpus(kept)
            for bound in (old_gpus | self.fixed, self.fixed) if old_gpus else (self.fixed,):
                if self.solve_state.best is None:
                    for plan in repaired(self.data, scheduled, bound, period, self.rng, self._count_insertion):
                        self.solve_state.offer(plan)
            self._place_anew(period)
        return self._reason()

    def _place_anew(self, period: int) -> None:
        """Try the placements that a search would begin with, where the period has grown and nothing is fixed."""
        for assignments in placements(self.operations, self.data.demands) if self.fix.empty else ():
            best = self.solve_state.objective
            if best is None or best <= period or self._reason() is not None:
                return
            for plan in reinserted(self.data, assignments, best, self.rng, self._count_insertion):
                self.solve_state.offer(plan)

    def _old_gpus(self, kept: Mapping[int, JobPlan]) -> dict[int, Sequence[int]]:
        """Return the GPUs of the old jobs that cannot keep their times but may stay on their GPUs."""
        old, number = {job.name: job for job in self.plan.data_parallel}, self.data.number
        return {
            index: [number[gpu] for gpu in old[job.name].gpus]
            for index, job in enumerate(self.operations.jobs)
            if index not in kept and job.name in old and not any(misplaced(self.operations, job, old[job.name].gpus))
        }

    @property
    def _improved_enough(self) -> bool:
        """Return whether the search is due: what it does anew may be better than any step from the old plan."""
        options = self.solve_state.options
        time, work = options.time_limit, options.work_limit
        late = time is not None and self.solve_state.seconds >= _IMPROVEMENT_SHARE * time
        return late or (work is not None and self.work >= _IMPROVEMENT_SHARE * work)

    @property
    def _limited(self) -> bool:
        options = self.solve_state.options
        asked = (options.time_limit, options.work_limit, options.no_improvement)
        return any(limit is not None for limit in asked)

    def _reason(self) -> StoppedBy | None:
        limit = self.solve_state.options.work_limit
        if limit is not None and self.work >= limit:
            return StoppedBy.TIME
        return self.solve_state.reason()

    def _counted(self, success: bool, index: int) -> bool:
        """Count the work of inserting a job a few times; return `success`."""
        job = self.operations.jobs[index]
        self.work += job.iterations * (len(job.blocks) + len(job.transfers)) * _PLACES_A_STEP * _WORK_OF_OPERATION
        return success

    def _count_insertion(self) -> bool:
        size = (self.operations.blocks + self.operations.transfers) // len(self.operations.jobs)
        self.work += size * _WORK_OF_OPERATION
        return self._reason() is not None
