"""Phased plans made of cyclic ones: shelves are placed, jobs that share anything form a group, and it gets phases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jigsaw_opt.documents import instance_sha256, validate
from jigsaw_opt.errors import OutOfTimeError, UsageError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.operations import MOST_OPERATIONS, cut
from jigsaw_opt.problem.phased_plan import Phase, PhasedPlan, PhaseGroup
from jigsaw_opt.problem.plan import Plan, PlanStatus
from jigsaw_opt.solvers.bounds import Bound, Proof
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

__all__ = ["PhasedResult", "is_long", "solve_phased"]

_AMPLE = 2**53 - 1
_PLACING_SHARE = 0.4
"""Of a time limit, for the cyclic plans that say where jobs are."""
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
        Limits, seed and cores. Without a time limit the jobs are placed by ``greedy``, with one by ``auto``.

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
    bound, causes = _bound(instance, options), _causes(instance)
    if causes:
        return none(Status.INFEASIBLE, bound.value, bound.proof, conflicts=causes)
    try:
        plan = _planned(instance, options, bound, started)
    except OutOfTimeError:
        plan = None
    seconds = time.monotonic() - started
    if plan is None or _is_late(instance, plan):
        return none(Status.UNKNOWN, bound.value, bound.proof, seconds=seconds)
    plan = replace(plan, solver={**plan.solver, "seconds": round(seconds, 3)})
    require_correct(instance, plan, "the solver of phased plans")
    return none(Status(plan.status), bound.value, bound.proof, plan, seconds=seconds)


def _bound(instance: Instance, options: Options) -> Bound:
    """The instant relaxations with memory for all jobs at once, as those that have ended need none any more."""
    servers = tuple(replace(server, gpu_memory=_AMPLE) for server in instance.cluster.servers)
    return first_bound(cut(replace(instance, cluster=replace(instance.cluster, servers=servers))), options)


def _causes(instance: Instance) -> tuple[Conflict, ...]:
    """Why some job alone has no plan; what rules out plans of several jobs at once does not rule out phases."""
    alone = (cut(replace(instance, jobs=(job,))) for job in instance.jobs)
    return tuple(cause for operations in alone for cause in certain_causes(operations))


def _require(instance: Instance) -> None:
    if instance.horizon != "finite":
        raise UsageError(f"instance {instance.name!r} is cyclic; a phased plan is one of the finite horizon")
    for jobs, has in ((instance.shaped, "a shape"), (instance.policed, "a route policy")):
        if jobs:
            raise UsageError(f"no phased plan is made for instance {instance.name!r}: job {jobs[0].name!r} has {has}")


def _planned(instance: Instance, options: Options, bound: Bound, started: float) -> PhasedPlan | None:
    timer = _Timer(instance, options, started)
    shelves = placed_shelves(instance, instance.data_parallel, timer.placed)
    if shelves is None:
        return None
    timing = partial(timer.timed, shelves)
    parts = []
    for names in sharing_groups(instance, shelves):
        jobs = {job.name: job for job in instance.data_parallel if job.name in names}
        ways = policies(jobs, shelves, timing)
        parts.append((jobs, ways, phases_of(jobs, next(ways), timing)))
    timer.first = False  # Now that every group has phases, the limit is kept.
    groups = [_best(instance, *part, timing, bound.value) for part in parts]
    ends = _ends_us([phase for phases in groups for phase in phases])
    objective = _objective(instance, ends)
    status: PlanStatus = "optimal" if bound.value == objective else "feasible"
    solver = {"name": "phased", "seed": options.seed}
    found = tuple(PhaseGroup(tuple(phases)) for phases in groups)
    return PhasedPlan(instance.name, instance_sha256(instance), status, objective, bound.value, found, solver)


def _best(
    instance: Instance,
    jobs: Mapping[str, Job],
    ways: Iterator[PhasePolicy],
    phases: list[Phase],
    timing: Timing,
    bound: int,
) -> list[Phase]:
    """The best phases of a group by any policy, as far as time goes; no more where none can make the plan better."""
    value = _value(instance, jobs, phases)
    try:
        while instance.objective != "makespan" or value > (0, bound):
            tried = phases_of(jobs, next(ways), timing)
            other = _value(instance, jobs, tried)
            if other < value:
                value, phases = other, tried
    except (OutOfTimeError, StopIteration):
        pass
    return phases


class _Timer:
    """Makes cyclic plans within a time limit, each of them once."""

    def __init__(self, instance: Instance, options: Options, started: float) -> None:
        self._instance, self._options = instance, options
        self._end = None if options.time_limit is None else started + options.time_limit
        self._known: dict[tuple[tuple[str, int], ...], Plan] = {}
        self.first = True

    def placed(self, part: Instance) -> Plan | None:
        """A cyclic plan of some jobs, wherever they are."""
        result = solve(part, "greedy" if self._end is None else "auto", self._within(_PLACING_SHARE, 0.0))
        return result.plan

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


def _value(instance: Instance, jobs: Mapping[str, Job], phases: Sequence[Phase]) -> tuple[int, int]:
    """How late jobs are in all, then the group's part of the objective."""
    ends = _ends_us(phases)
    late = sum(max(0, ends[name] - job.deadline_us) for name, job in jobs.items() if job.deadline_us is not None)
    return late, _objective(instance, ends)


def _is_late(instance: Instance, plan: PhasedPlan) -> bool:
    ends = _ends_us([phase for _, _, phase in plan.all_phases()])
    return any(job.deadline_us is not None and ends[job.name] > job.deadline_us for job in instance.jobs)
