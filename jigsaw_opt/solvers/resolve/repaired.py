"""A plan of another instance as a start: repaired, then improved."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from jigsaw_opt.checking import violations
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Timetable, assemble, decisions_of, objective_of
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.solvers.activities.placing import fit_at_once
from jigsaw_opt.solvers.bound_tightening import BOUND_WORK, raise_bounds_for
from jigsaw_opt.solvers.greedy.heuristic import placements, require_size
from jigsaw_opt.solvers.infeasibility.together import restrict
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.candidates import CandidateGenerator
from jigsaw_opt.solvers.placement.layout import Layout, demands
from jigsaw_opt.solvers.placement.state import PartialPlacement, fullest_us
from jigsaw_opt.solvers.resolve.carried import CarriedPlan
from jigsaw_opt.solvers.resolve.fix import Fix, has_begun, misplaced, problems, same_shape
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder, timetable_in
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search.cyclic.candidate_table import FixedPolicy, InsertionPolicy
from jigsaw_opt.solvers.search.solver import searched
from jigsaw_opt.solvers.search.state.insertion import ScheduledJob
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import Opening, SolveState


class OldPlaces:
    """Offers by which jobs go back to where they were, as far as they may.

    `bound`: assignments of the jobs that keep theirs, by number of the job. `fixed`: GPUs of others that keep theirs.
    `old_gpus`: GPUs on which others are tried first. `targets`: by job, where it would be if it were alone; None where
    it has no place.
    """

    def __init__(
        self,
        data: ProblemData,
        rng: random.Random,
        bound: Mapping[int, Assignment],
        fixed: Mapping[int, Sequence[int]],
        old_gpus: Mapping[int, Sequence[int]],
    ) -> None:
        self.bound, self.fixed, self.old_gpus = bound, fixed, old_gpus
        self._generator, empty = CandidateGenerator(data, rng), PartialPlacement(data)
        jobs = range(len(data.operations.jobs))
        self.targets = [next(self.assignments(empty, index), None) for index in jobs]

    def assignments(self, placement: PartialPlacement, index: int) -> Iterator[Assignment]:
        """Yield assignments that memory admits now.

        The neighbours of an unassigned job may have come back with other levels.
        """
        if index in self.bound:
            if placement.admits(index, self.bound[index]):
                yield self.bound[index]
            return
        first = [gpus for gpus in (self.fixed.get(index, self.old_gpus.get(index)),) if gpus is not None]
        others = () if index in self.fixed else self._generator.of(placement, index, thorough=True)
        for gpus in chain(first, others):
            assignment = placement.assignment(index, gpus)
            if assignment is not None:
                yield assignment

    def target(self, index: int) -> Assignment:
        """Return where a job that has a place would be if it were alone."""
        found = self.targets[index]
        assert found is not None, "no job without a place is inserted"
        return found


def shorter(
    attempt: Callable[[int], JobInsertion | None], low: int, high: int, finest: int, stop: Callable[[], bool]
) -> Iterator[JobInsertion]:
    """Yield what an attempt finds at shorter and shorter periods between one without a plan and one with a plan.

    It ends where these are no further apart than `finest` microseconds.
    """
    while high - low > max(1, finest) and not stop():
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            low = middle
        else:
            high = middle
            yield found


def stretched(scheduled: ScheduledJob, period: int, stretch: int, cut: int) -> ScheduledJob:
    """Return a job after `stretch` microseconds are inserted at a moment of every period; it keeps its durations."""

    def later(start: int) -> int:
        return start + stretch * ((start - cut) // period + 1)

    if not stretch:
        return scheduled
    return replace(
        scheduled,
        blocks=[[later(start) for start in row] for row in scheduled.blocks],
        transfers=[[later(start) for start in row] for row in scheduled.transfers],
        start=later(scheduled.start),
        end=later(scheduled.end - 1) + 1,
    )


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
        part = restrict(operations, chosen)
        jobs, stirred = _now(part, [old[job.name] for job in part.jobs], fix.moment)
        broken = stirred or _broken(part, jobs, plan.period_us)
        if not broken:
            return dict(zip(chosen, jobs, strict=True))
        chosen = [index for at, index in enumerate(chosen) if at not in broken]
    return {}


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
_BOUND_SHARE = 0.2
"""Share of the limits for bounds before a search with placements held; they hold for all plans, and so for these."""
_IMPROVEMENT_SHARE = 0.3
"""Share of the limits of time and work after which the search goes on, unless what is fixed leaves it nothing to do."""
_TRIES = 10
"""Fruitless tries of ruin and recreate for jobs without room, after which all jobs, or another period, do better."""
_STEP = 1 / 128
"""Share of the period by which it is stretched at first where jobs find no room: mostly little is missing."""
_WORK_OF_OPERATION = 1e-6
"""Deterministic seconds that an operation counts as which is scheduled, or for which room is looked for."""


@dataclass(frozen=True, slots=True)
class Repaired(Opening):
    """Offers the plan of another instance, repaired, and goes on from it as what is asked of it permits.

    Jobs are matched by name. Those whose operations still keep to all rules stay as they lie at first; the others are
    inserted into the gaps. `fix`: parts of the old plan that stay. `improves`: whether an improvement follows, short
    where nothing limits the solve.
    """

    plan: Plan
    fix: Fix
    improves: bool

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
        self.data = ProblemData(now, demands(now) or asked, Layout(now, in_time=now.has_scarce_holdings))
        number = self.data.number
        index_of = {job.name: index for index, job in enumerate(now.jobs)}
        self.fixed = {index_of[job]: [number[gpu] for gpu in gpus] for job, gpus in self.fix.placements.items()}
        cyclic, period = now.horizon == "cyclic", self.plan.period_us if now.horizon == "cyclic" else None
        if cyclic and period is None:
            return self._reason() or self._going_on(improves)
        empty = PartialSchedule(self.data, period)
        old = {job.name: job for job in self.plan.data_parallel}
        self.history = {index: empty.read(index, old[name]) for name, index in index_of.items() if name in self.begun}
        self._require_history(PartialSchedule(self.data, None, self.fix.moment))
        kept = {index: empty.read(index, job) for index, job in carried(self.operations, self.plan, self.fix).items()}
        self.old_gpus = {
            index: [number[gpu] for gpu in old[job.name].gpus]
            for index, job in enumerate(now.jobs)
            if job.name in old and not any(misplaced(self.operations, job, old[job.name].gpus))
        }
        bound = {index: own.assignment for index, own in (kept if cyclic else self.history).items()}
        self.policy = OldPlaces(self.data, self.rng, bound, self.fixed, self.old_gpus)
        if None in self.policy.targets:
            return self._reason() or self._going_on(improves)
        return self._insert(kept, period, improves) or self._going_on(improves)

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
        self.solve_state.spend(self.work)
        if improves and self._searches:
            raise_bounds_for(self.solve_state, self.operations, _BOUND_SHARE, BOUND_WORK)
            return searched(self.solve_state, held=self.fixed)
        if not self.fix.empty or (improves and self.solve_state.objective is not None and not wanted):
            return StoppedBy.COMPLETED
        return None

    @property
    def _searches(self) -> bool:
        """Return whether a search goes on with placements held: a limit, no past, and memory for all jobs at once."""
        operations, best = self.operations, self.solve_state.best
        if operations.needs_network or self.fix.moment or not (self.fix.placements and self._limited):
            return False
        return not operations.has_scarce_holdings or (best is not None and fit_at_once(operations, best))

    def _released(self, job: OperationGraph) -> OperationGraph:
        """Return a job that starts no earlier than the moment, unless it has begun."""
        return job if job.name in self.begun else replace(job, release_us=max(job.release_us, self.fix.moment))

    def _insert(self, kept: Mapping[int, ScheduledJob], period: int | None, improving: bool) -> StoppedBy | None:
        """Offer plans with all jobs, and better ones; return why the solve ends with them, if it does."""
        last: JobInsertion | None = None
        for last in self._found(kept, period):
            self.solve_state.offer(last.schedule.timetable())
        if period is not None:
            self._place_anew(period)
            return self._reason()
        if last is None or not improving or self._searches:
            return self._reason()
        return self._improve(last, [index for index in range(len(self.operations.jobs)) if index not in kept])

    def _found(self, kept: Mapping[int, ScheduledJob], period: int | None) -> Iterator[JobInsertion]:
        """Yield schedules of all jobs, each better than the one before.

        On the cyclic horizon at the old period, or shorter and shorter ones that are longer than it.
        """
        # No plan has a period below the bound.
        least = period if period is None else max(period, self.solve_state.bound)
        found = self._attempt(self.policy, kept, period, least)
        if found is not None or period is None or least is None:
            yield from () if found is None else (found,)
            return
        step = max(1, round(period * _STEP))
        low, high = least - period, least - period + step
        # An empty stretch as long as all other jobs in turn has room for them; memory may never have.
        others = [self.policy.target(index) for index in range(len(self.operations.jobs)) if index not in kept]
        most = 2 * period + sum(each.iteration_us * each.job.iterations for each in others)
        while (found := self._attempt(self.policy, kept, period, period + high)) is None:
            if self._stop() or high > most:
                return
            low, high = high, high + 2 * (high - low)
        yield found
        # More room is not always of use to insertion, so that the least stretch with a plan is sought from below.
        for stretch in range(low + step, high, step):
            found = None if self._stop() else self._attempt(self.policy, kept, period, period + stretch)
            if found is not None:
                yield found
                high = stretch
                break
        attempt = partial(self._attempt, self.policy, kept, period)
        yield from shorter(attempt, period + max(low, high - step), period + high, step // 16, self._stop)

    def _attempt(
        self, policy: InsertionPolicy, kept: Mapping[int, ScheduledJob], old: int | None, period: int | None
    ) -> JobInsertion | None:
        """Insert the other jobs among the kept ones, or else all jobs anew; return None where some find no room."""
        cut, weights = self.rng.randrange(old or 1), self._weights(policy)
        for stay in (kept, {}) if kept else ({},):
            schedule = PartialSchedule(self.data, period, self.fix.moment)
            for index, own in self.history.items():
                schedule.freeze(index, own)
            left = []
            for index in range(len(self.operations.jobs)):
                scheduled = stay.get(index)
                if scheduled is not None and period is not None and old is not None:
                    scheduled = stretched(scheduled, old, period - old, cut)
                if scheduled is not None and schedule.admits(scheduled):
                    schedule.add(index, scheduled)
                else:
                    left.append(index)
            insertion = JobInsertion(schedule, policy, self.rng, self._count)
            if not insertion.insert(left, weights, _TRIES, self._stop):
                return insertion
        return None

    def _weights(self, policy: InsertionPolicy) -> list[float]:
        """Return weights of jobs, of which the largest comes first: jobs that are bound to GPUs, then the longest."""
        demands = self.data.demands
        if self.operations.horizon == "cyclic":
            lengths = [sum(map(sum, policy.target(index).exchange)) for index in range(len(demands))]
        else:
            lengths = [max(demand.slot_us.values()) for demand in demands]
        first, total = self.fixed.keys() | self.history, sum(lengths)
        return [float(length + total * (index in first)) for index, length in enumerate(lengths)]

    def _require_history(self, schedule: PartialSchedule) -> None:
        """Refuse to keep what has started where that breaks rules with the durations of now."""
        clashes, told = [], None
        for index, scheduled in self.history.items():
            job = self.operations.jobs[index]
            if not schedule.freeze(index, scheduled):
                told = "what it has started overlaps something with the durations of now"
            elif schedule.inserted(index, scheduled.assignment, job.release_us, None) is None:
                told = "what it has started breaks an order with the durations of now"
            else:
                continue
            clashes.append(Problem(f'$.before_us: job "{job.name}"', told, code="broken-rule"))
        clashes += self._crowded(schedule)
        if clashes:
            raise InvalidInputError(clashes)

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

    def _improve(self, insertion: JobInsertion, changed: Sequence[int]) -> StoppedBy | None:
        """Ruin and recreate around the changed jobs and what ends last; with a limit and a fix until that limit."""
        idle, jobs = 0, range(len(self.operations.jobs))
        patience = math.inf if self._limited and not self.fix.empty else _PATIENCE
        while (reason := self._reason()) is None and idle < patience and not (self.fix.empty and self._improved_enough):
            ends = [own.end for own in insertion.schedule.scheduled if own is not None]
            first = self.rng.choice(jobs) if insertion.weighted else max(jobs, key=ends.__getitem__)
            if changed and self.rng.random() < 0.3:
                first = self.rng.choice(changed)
            idle = 0 if insertion.step(first) else idle + 1
            self.old_gpus |= {
                index: own.assignment.gpus for index, own in enumerate(insertion.schedule.scheduled) if own
            }
            if self.solve_state.objective is not None and insertion.score(jobs)[0] < self.solve_state.objective:
                self.solve_state.offer(insertion.schedule.timetable())
        return reason

    def _place_anew(self, period: int) -> None:
        """Try the placements that a search would begin with, where the period has grown and nothing is fixed."""
        for assignments in placements(self.operations, self.data.demands) if self.fix.empty else ():
            best = self.solve_state.objective
            if best is None or best <= period or self._stop():
                return
            attempt = partial(self._attempt, FixedPolicy(assignments), {}, period)
            least = min(best, fullest_us(assignments)) - 1
            for found in shorter(attempt, least, best, (best - least) // 16, self._stop):
                self.solve_state.offer(found.schedule.timetable())

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

    def _stop(self) -> bool:
        """Return whether repair is over: for a reason, or where the search is due (from a plan, if nothing is held)."""
        if self._improved_enough and (self._searches or (self.fix.empty and self.solve_state.objective is not None)):
            return True
        return self._reason() is not None

    def _count(self, operations: int) -> None:
        self.work += operations * _WORK_OF_OPERATION
