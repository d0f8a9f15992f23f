"""What of an old plan has to stay, and whether it can."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jigsaw_opt.arguments import require_fields, typed
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.text import suggestion


@dataclass(frozen=True, slots=True)
class Fix:
    """Parts of the old plan that must hold in the new one.

    Parameters
    ----------
    placements
        By name of a job, the names of the GPUs that its workers are on, in their order.
    before_us
        On a finite horizon, a moment in microseconds: every block and every transfer of the old plan that started
        earlier stays, with its GPU, level and start, and everything else starts no earlier. None for no such moment.
    """

    placements: Mapping[str, Sequence[str]] = field(default_factory=dict)
    before_us: int | None = None

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def moment(self) -> int:
        """Return the moment before which nothing new starts, in microseconds."""
        return self.before_us or 0

    @property
    def empty(self) -> bool:
        """Return whether nothing is fixed."""
        return not self.placements and not self.moment


@typed
def placements_of(plan: Plan, jobs: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Return the placements of some data-parallel jobs of a plan, or of all of them, to be fixed.

    Parameters
    ----------
    plan
        The plan.
    jobs
        Names of the jobs; None for all data-parallel ones.

    Returns
    -------
    dict[str, tuple[str, ...]]
        By name of a job, the names of its GPUs in the order of its workers.

    Raises
    ------
    InvalidInputError
        The plan lacks some of the jobs, or they have task graphs; with all of them.
    """
    planned = {job.name: job for _, _, phase in plan.all_phases() for job in phase.jobs}
    found = {job.name: job.gpus for _, _, phase in plan.all_phases() for job in phase.data_parallel_jobs}
    wrong = [_not_placed(name, planned, found) for name in jobs or () if name not in found]
    if wrong:
        raise InvalidInputError(wrong)
    return found if jobs is None else {name: found[name] for name in jobs}


def _not_placed(name: str, planned: Collection[str], found: Collection[str]) -> Problem:
    """Return why a job has no placement that can be fixed."""
    if name in planned:
        told = f'job "{name}" has a task graph; only placements of data-parallel jobs are fixed'
        return Problem("$.jobs", told, code="unsupported")
    return Problem("$.jobs", f'the plan has no job "{name}"', suggestion(name, found), code="unknown-name")


def has_begun(job: JobPlan | TaskGraphJobPlan, moment: int) -> bool:
    """Return whether any block of a job starts before a moment."""
    return any(block.start_us < moment for iteration in job.iterations[:1] for block in iteration.blocks)


def misplaced(operations: Operations, job: OperationGraph, gpus: Sequence[str]) -> Iterator[str]:
    """Yield why a job cannot be on GPUs, apart from memory.

    `gpus`: names of the GPUs, by worker.
    """
    servers = operations.cluster.servers
    known = {name: s for name, (s, _) in operations.cluster.gpus.place_of.items()}
    if len(gpus) != job.slots:
        yield f"names {len(gpus)} GPUs for {job.slots} workers"
    if len(set(gpus)) < len(gpus):
        yield "names a GPU twice"
    for name in dict.fromkeys(gpus):
        if name not in known:
            yield f'there is no GPU "{name}"'
        elif servers[known[name]].gpu_type not in job.gpu_types:
            yield f'the model has no times for the type of GPU "{name}"'
    used = sorted({known[name] for name in gpus if name in known})
    if len(used) > 1 and operations.routes.under(job.route_policy).ring(used) is None:
        yield "no path joins all servers of these GPUs"


def problems(operations: Operations, plan: Plan, fix: Fix) -> Iterator[Problem]:
    """Yield everything in a fix that no plan of the instance can honour, as far as that shows without a search."""
    jobs = {job.name: job for job in operations.jobs}
    for name, gpus in fix.placements.items():
        place = f'$.placements["{name}"]'
        if name not in jobs:
            yield Problem(place, "the instance has no such job", code="unknown-name")
            continue
        for message in misplaced(operations, jobs[name], gpus):
            yield Problem(place, message, code="contradiction")
    if fix.before_us is None:
        return
    if fix.before_us < 0:
        yield Problem("$.before_us", f"must be at least 0; is {fix.before_us}", code="out-of-range")
    if operations.horizon == "cyclic":
        yield Problem("$.before_us", "a cyclic plan has no past", "fix placements only", code="contradiction")
        return
    for old in plan.data_parallel:
        if old.name in jobs and has_begun(old, fix.before_us):
            yield from _unkept(operations, jobs[old.name], old, fix)


def breaches(jobs: Sequence[JobPlan | TaskGraphJobPlan], old: Plan, fix: Fix) -> Iterator[str]:
    """Yield where the jobs of a plan do not honour a fix that has no problems."""
    before = {job.name: job for job in old.jobs}
    for job in jobs:
        if job.name in fix.placements and tuple(fix.placements[job.name]) != job.gpus:
            yield f"job {job.name} is not on the GPUs that were fixed"
        past = before.get(job.name)
        begun = past is not None and has_begun(past, fix.moment)
        if past is not None and begun and past.gpus != job.gpus:
            yield f"job {job.name} has begun and is on other GPUs"
        if _history(job, fix.moment) != (_history(past, fix.moment) if past is not None else []):
            yield f"what job {job.name} starts before {fix.moment} is not what it was"


def _history(job: JobPlan | TaskGraphJobPlan, moment: int) -> list[tuple[int, int, object]]:
    """Return everything that starts before a moment, without its end: iteration, place in it, and what it is."""
    iterations: Any = job.iterations
    return [
        (i, place, replace(done, end_us=0))
        for i, iteration in enumerate(iterations)
        for place, done in enumerate(iteration.operations)
        if done.start_us < moment
    ]


def _unkept(operations: Operations, job: OperationGraph, old: JobPlan, fix: Fix) -> Iterator[Problem]:
    """Yield what forbids keeping the history of a job; see `problems`."""
    place = f'$.before_us: job "{job.name}"'
    if not same_shape(job, old):
        yield Problem(
            place, "has begun, and its workers, iterations, levels or buckets are no longer the same", code="mismatch"
        )
        return
    for message in misplaced(operations, job, old.gpus):
        yield Problem(place, f"has begun, but {message}", code="contradiction")
    wanted = fix.placements.get(job.name)
    if wanted is not None and tuple(wanted) != old.gpus:
        yield Problem(place, "has begun, and its fixed placement is another one", code="contradiction")
    if old.start_us < job.release_us:
        yield Problem(place, f"has begun before its release at {job.release_us}", code="contradiction")


def same_shape(job: OperationGraph, old: JobPlan) -> bool:
    """Return whether an old plan of a job has as many workers, iterations and buckets as the job has now."""
    return (
        len(old.gpus) == job.slots
        and len(old.iterations) == job.iterations
        and all(len(iteration.blocks) == job.slots for iteration in old.iterations)
        and all(min(b.level for b in iteration.blocks) >= 1 for iteration in old.iterations)
        and all(max(b.level for b in iteration.blocks) == job.levels for iteration in old.iterations)
        and all(
            [t.bucket for t in iteration.transfers] == [t.bucket for t in job.transfers] for iteration in old.iterations
        )
        and all(block.start_us >= 0 for iteration in old.iterations for block in iteration.blocks)
        and all(transfer.start_us >= 0 for iteration in old.iterations for transfer in iteration.transfers)
    )
