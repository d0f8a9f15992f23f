"""Phased plans made of cyclic ones: shelves are placed, jobs that share anything form a group, and it gets phases."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jigsaw_opt.documents import instance_sha256, validate
from jigsaw_opt.errors import OutOfTimeError, UsageError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, Job
from jigsaw_opt.problem.operations import MOST_OPERATIONS, cut
from jigsaw_opt.problem.phased_plan import Phase, PhasedPlan, PhaseGroup
from jigsaw_opt.problem.plan import Plan, PlanStatus
from jigsaw_opt.solvers.bounds import Bound, Proof, stronger_bounds
from jigsaw_opt.solvers.control import first_bound
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.infeasibility import certain_causes, too_wide
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased.phases import PhasePolicy, Timing, phases_of
from jigsaw_opt.solvers.phased.policies import policies
from jigsaw_opt.solvers.phased.shelves import cyclic_part, placed_shelves, sharing_groups
from jigsaw_opt.solvers.phased.timing import FixedPlacementTiming
from jigsaw_opt.solvers.result import Conflict, Status, relative_gap
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.stronger import BOUND_WORK

__all__ = ["PhasedResult", "is_long", "solve_phased"]

_AMPLE = 2**53 - 1
_MOST = 4
_PLACINGS = (("greedy", _MOST), ("greedy", 1), ("greedy", 2 * _MOST))
"""What places jobs on the cyclic horizon, and how many iterations of a job there are in a period at most."""
_LAST_PLACING = ("auto", _MOST)
"""The same, where there is a time limit and some of it is left."""
_PLACING_SHARE = 0.4
"""Of what is left then, for placing."""
_BOUND_SHARE = 0.1
"""Of a time limit, for the bound."""
_LEAST_SECONDS = 1.0
"""For a cyclic plan without which a group has no phases at all."""
_INSTANT = 0.001


@dataclass(frozen=True, slots=True)
class PhasedResult:
    """The outcome of making a phased plan.

    Parameters
    ----------
    status
        How much is known.
    bound, proof
        A proven lower bound, and what proves it.
    plan
        The plan, checked, or None.
    conflicts
        Why there is no plan, where that is proven.
    seconds, seed
        Wall-clock time and seed.
    """

    status: Status
    bound: int
    proof: Proof = field(default_factory=Proof)
    plan: PhasedPlan | None = None
    conflicts: tuple[Conflict, ...] = ()
    seconds: float = 0.0
    seed: int = 0

    @property
    def objective(self) -> int | None:
        """Objective of the plan, or None without one."""
        return None if self.plan is None else self.plan.objective

    @property
    def gap(self) -> float | None:
        """Relative gap, or None without a plan."""
        return None if self.objective is None else relative_gap(self.objective, self.bound)


def is_long(instance: Instance) -> bool:
    """Whether no plan that lists all iterations is written for an instance, and a phased one may be."""
    if instance.horizon != "finite" or instance.shaped:
        return False
    operations = 0
    for job in instance.data_parallel:
        operations += job.iterations * (job.workers + (instance.models[job.model].depth if job.workers > 1 else 0))
    return operations > MOST_OPERATIONS


def solve_phased(instance: Instance, options: Options | None = None) -> PhasedResult:
    """Make a phased plan, check it, and say how far from the best it may be (specification: phased-plans).

    Parameters
    ----------
    instance
        Of the finite horizon, all of its jobs data-parallel.
    options
        Limits, seed and cores. Jobs are placed by ``greedy``, and within a time limit by ``auto``, too.

    Raises
    ------
    InvalidInputError
        The instance breaks a rule of the document.
    UsageError
        It is cyclic, or a job has a shape or a route policy.
    MissingEngineError
        There is a time limit, and what ``auto`` needs is not installed.
    """
    instance, options, started = validate(instance), options or Options(), time.monotonic()
    _require(instance)
    none = partial(PhasedResult, seed=options.seed)
    causes = too_wide(instance)
    if causes:
        return none(Status.INFEASIBLE, 0, Proof("there is no plan"), conflicts=causes)
    bound, causes = _bound(instance, options, started), _causes(instance)
    if causes:
        return none(Status.INFEASIBLE, bound.value, bound.proof, conflicts=causes)
    try:
        plan = _planned(instance, options, bound, started)
    except OutOfTimeError:
        plan = None
    seconds = time.monotonic() - started
    if plan is None or _rank(instance, plan)[0] > 0:
        return none(Status.UNKNOWN, bound.value, bound.proof, seconds=seconds)
    plan = replace(plan, solver={**plan.solver, "seconds": round(seconds, 3)})
    require_correct(instance, plan, "the solver of phased plans")
    return none(Status(plan.status), bound.value, bound.proof, plan, seconds=seconds)


def _bound(instance: Instance, options: Options, started: float) -> Bound:
    """What relaxations prove within a second or two, and a share of the limit, of plans with ample memory.

    A job that has ended needs no memory any more, so that jobs run in turn that do not fit together.
    """
    servers = tuple(replace(server, gpu_memory=_AMPLE) for server in instance.cluster.servers)
    operations = cut(replace(_unbalanced(instance), cluster=replace(instance.cluster, servers=servers)))
    best = first_bound(operations, options)
    end = math.inf if options.time_limit is None else started + _BOUND_SHARE * options.time_limit

    def stop() -> bool:
        return options.cancel.is_set() or time.monotonic() >= end

    for bound in stronger_bounds(operations, best.value, BOUND_WORK, stop, options.without_bounds):
        best = bound
    return best


def _causes(instance: Instance) -> tuple[Conflict, ...]:
    """Why some job alone has no plan; what rules out plans of several jobs at once does not rule out phases."""
    alone = (cut(replace(instance, jobs=(job,))) for job in _unbalanced(instance).jobs)
    return tuple(cause for operations in alone for cause in certain_causes(operations))


def _unbalanced(instance: Instance) -> Instance:
    """The instance without balance: it holds in every period, and many periods add up to any difference."""
    jobs = tuple(
        replace(job, depth=replace(job.depth, balance=None)) if isinstance(job.depth, FreeDepth) else job
        for job in instance.data_parallel
    )
    return replace(instance, jobs=jobs)


def _require(instance: Instance) -> None:
    if instance.horizon != "finite":
        raise UsageError(f"instance {instance.name!r} is cyclic; a phased plan is one of the finite horizon")
    for jobs, has in ((instance.shaped, "a shape"), (instance.policed, "a route policy")):
        if jobs:
            raise UsageError(f"no phased plan is made for instance {instance.name!r}: job {jobs[0].name!r} has {has}")


def _planned(instance: Instance, options: Options, bound: Bound, started: float) -> PhasedPlan | None:
    """The best plan on several placements, as far as time goes; no more once one is at the bound."""
    best: PhasedPlan | None = None
    for placing in _PLACINGS if options.time_limit is None else (*_PLACINGS, _LAST_PLACING):
        timer = _Timer(instance, options, started, first=best is None)
        if options.cancel.is_set() or (best is not None and timer.is_over):
            break
        try:
            plan = _planned_on(instance, timer, placing, bound, options.seed)
        except OutOfTimeError:
            break
        if plan is not None and (best is None or _rank(instance, plan) < _rank(instance, best)):
            best = plan
        if best is not None and _rank(instance, best) <= (0, bound.value):
            break
    return best


def _planned_on(
    instance: Instance, timer: _Timer, placing: tuple[str, int], bound: Bound, seed: int
) -> PhasedPlan | None:
    """The best plan on one placement; None where there is none."""
    name, most = placing
    shelves = placed_shelves(instance, instance.data_parallel, partial(timer.placed, name), most)
    if shelves is None:
        return None
    timing = partial(timer.timed, shelves)
    groups = []
    for names in sharing_groups(instance, shelves):
        jobs = {job.name: job for job in instance.data_parallel if job.name in names}
        groups.append(_GroupSearch(instance, jobs, policies(jobs, shelves, timing), timing))
    timer.first = False  # Now that every group has phases, the limit is kept.
    _improve(groups, bound.value)
    objective = _objective(instance, _ends_us([phase for group in groups for phase in group.phases]))
    status: PlanStatus = "optimal" if bound.value == objective else "feasible"
    found = tuple(PhaseGroup(tuple(group.phases)) for group in groups)
    solver = {"name": "phased", "seed": seed, "placed_by": name}
    return PhasedPlan(instance.name, instance_sha256(instance), status, objective, bound.value, found, solver)


class _GroupSearch:
    """The best phases of a group so far, and the policies that are left to try.

    Raises
    ------
    OutOfTimeError
        There was no time for the first of them.
    """

    def __init__(
        self, instance: Instance, jobs: Mapping[str, Job], ways: Iterator[PhasePolicy], timing: Timing
    ) -> None:
        self._instance, self._jobs, self._ways, self._timing = instance, jobs, ways, timing
        self.phases = phases_of(jobs, next(ways), timing)
        self._value = _value(instance, jobs, self.phases)

    def may_help(self, bound: int) -> bool:
        """Whether a better group may make a better plan."""
        return self._instance.objective != "makespan" or self._value > (0, bound)

    def step(self) -> bool:
        """Try a policy; says whether there was one left."""
        policy = next(self._ways, None)
        if policy is None:
            return False
        tried = phases_of(self._jobs, policy, self._timing)
        value = _value(self._instance, self._jobs, tried)
        if value < self._value:
            self._value, self.phases = value, tried
        return True


def _improve(groups: Sequence[_GroupSearch], bound: int) -> None:
    """Let the groups try policies in turn, as far as time goes."""
    left = list(groups)
    try:
        while left:
            left = [group for group in left if group.may_help(bound) and group.step()]
    except OutOfTimeError:
        return


class _Timer:
    """Makes cyclic plans within a time limit, each of them once."""

    def __init__(self, instance: Instance, options: Options, started: float, first: bool) -> None:
        self._instance, self._options = instance, options
        self._end = None if options.time_limit is None else started + options.time_limit
        self._known: dict[tuple[tuple[str, int], ...], Plan] = {}
        self.first = first

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached."""
        return self._end is not None and time.monotonic() >= self._end

    def placed(self, solver: str, part: Instance) -> Plan | None:
        """A cyclic plan of some jobs, wherever they are."""
        share = _PLACING_SHARE if (solver, _MOST) == _LAST_PLACING else 1.0
        return solve(part, solver, self._within(share, _LEAST_SECONDS if self.first else 0.0)).plan

    def timed(self, shelves: Sequence[Plan], counts: Mapping[str, int]) -> Plan:
        """A cyclic plan of jobs that run together, on the GPUs that their shelf has.

        Raises
        ------
        OutOfTimeError
            There was no time for one.
        """
        key = tuple(sorted(counts.items()))
        if key not in self._known:
            placements = {job.name: job.gpus for plan in shelves for job in plan.jobs if job.name in counts}
            part = cyclic_part(self._instance, counts)
            result = solve(
                part, FixedPlacementTiming(placements), self._within(1.0, _LEAST_SECONDS if self.first else 0.0)
            )
            if result.plan is None:
                raise OutOfTimeError("no time was left for the cyclic plan of a phase")
            self._known[key] = result.plan
        return self._known[key]

    def _within(self, share: float, least: float) -> Options:
        """A share of the time that is left, and so many seconds at least."""
        limit = None if self._end is None else max(share * (self._end - time.monotonic()), least, _INSTANT)
        asked = self._options
        return Options(time_limit=limit, seed=asked.seed, workers=asked.workers, cancel=asked.cancel)


def _ends_us(phases: Sequence[Phase]) -> dict[str, int]:
    """When each job ends."""
    ends = {}
    for phase in phases:
        for job in phase.jobs:
            ends[job.name] = replace(phase, jobs=(job,)).end_us
    return ends


def _objective(instance: Instance, ends: Mapping[str, int]) -> int:
    if instance.objective == "makespan":
        return max(ends.values())
    return sum(job.weight * ends[job.name] for job in instance.jobs if job.name in ends)


def _rank(instance: Instance, plan: PhasedPlan) -> tuple[int, int]:
    """How late jobs are in all, then the objective."""
    return _value(instance, {job.name: job for job in instance.data_parallel}, [it for _, _, it in plan.all_phases()])


def _value(instance: Instance, jobs: Mapping[str, Job], phases: Sequence[Phase]) -> tuple[int, int]:
    """How late jobs are in all, then the group's part of the objective."""
    ends = _ends_us(phases)
    late = sum(max(0, ends[name] - job.deadline_us) for name, job in jobs.items() if job.deadline_us is not None)
    return late, _objective(instance, ends)
