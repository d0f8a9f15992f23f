"""Guarantees that jobs keep alone and not together: the smallest such set, how late it is, and whether for memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.infeasibility.guarantees import guarantee_of
from jigsaw_opt.solvers.infeasibility.places import places_of
from jigsaw_opt.solvers.infeasibility.plan_feasibility import PlanCheck, largest_objective
from jigsaw_opt.solvers.result import Conflict
from jigsaw_opt.text import named

IsFeasible = Callable[[Operations], bool | None]
"""Whether there is a plan for some of the jobs, or None where that stays open."""


def restrict(operations: Operations, jobs: Iterable[int]) -> Operations:
    """Return the instance with only some of its jobs, given by index in the order wanted.

    `jobs`: indices of the jobs to keep, among those of the instance.
    """
    kept = tuple(operations.instance.jobs[k] for k in jobs)
    data_parallel = {job.name: job for job in operations.jobs}
    graphs = {graph.job.name: graph for graph in operations.task_graphs}
    return replace(
        operations,
        instance=altered(operations.instance, jobs=kept),
        jobs=tuple(data_parallel[job.name] for job in kept if job.name in data_parallel),
        task_graphs=tuple(graphs[job.name] for job in kept if job.name in graphs),
    ).with_routes(operations.routes)


def smallest_part(operations: Operations, check: IsFeasible) -> tuple[Operations, bool]:
    """Return the part without a plan that has as few jobs as is known, and whether any fewer are known to have one."""
    proven = True

    def holds(jobs: Sequence[int]) -> bool:
        nonlocal proven
        answer = not jobs or check(restrict(operations, sorted(jobs)))
        proven = proven and answer is not None
        return answer is not False

    jobs = _quickxplain(holds, (), tuple(range(len(operations.instance.jobs))), False)
    return restrict(operations, sorted(jobs)), proven


def _quickxplain(
    holds: Callable[[Sequence[int]], bool], given: tuple[int, ...], jobs: tuple[int, ...], grown: bool
) -> tuple[int, ...]:
    """Return those of some jobs that are in a minimal conflict (QuickXplain, Junker, AAAI 2004).

    `holds`: whether some jobs, by index, are not known to conflict. `grown`: whether the background has grown since it
    was last asked about, so that it may conflict on its own.
    """
    if grown and not holds(given):
        return ()
    if len(jobs) == 1:
        return jobs
    first, second = jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]
    right = _quickxplain(holds, given + first, second, True)
    left = _quickxplain(holds, given + right, first, bool(right))
    return left + right


_WORK = 10.0
"""Deterministic units of the engine's work for all questions together."""
_MOST_WORK = 1.0
"""The same for one of them."""
_MOST_TRIED = 4
"""Guarantees that are tried with more time."""


def broken_together(operations: Operations, known: Conflict | None = None) -> Conflict | None:
    """Return the conflict that no plan keeps the guarantees of some jobs, though each of them alone may.

    The result is None where jobs that guarantee nothing have no plan.

    The jobs are narrowed to a minimal set as far as a limited amount of work goes. What the message says of fewer jobs,
    of a later deadline and of more memory was asked of the exact model.

    `operations`: the compiled instance; it has no plan. `known`: the conflict that is known already; returned where the
    model cannot tell more in the time.
    """
    check, told = PlanCheck(_WORK, _MOST_WORK), list[str]()
    part, minimal = operations, False
    try:
        # Where the model itself leaves open whether the whole has a plan, that is the part.
        if check(operations) is False:
            part, minimal = smallest_part(operations, check)
        if not part.instance.guaranteed_jobs:
            return None
        late = _nearest(part, check)
        told += [] if late is None else [_told_of_time(part, late)]
        told += _told_of_memory(part, check, part.instance.guaranteed_jobs[0] if late is None else late.job)
    except OutOfTimeError:
        pass  # What is known by now is true.
    if known is not None and part is operations and not minimal and not told:
        return known
    kind = "pace" if operations.horizon == "cyclic" else "deadline"
    names = [job.name for job in part.instance.jobs]
    guaranteed = part.instance.guaranteed_jobs
    kept = named([f"{job.name} ({guarantee_of(job)})" for job in guaranteed], 8)
    besides = [job.name for job in part.instance.jobs if job not in guaranteed]
    who = "all jobs" if len(names) == len(operations.instance.jobs) else f"jobs {named(names)}"
    beside = f" beside {named(besides)}" if besides and who != "all jobs" else ""
    fewer = ", though any fewer of these jobs have one" if minimal and len(names) > 1 else ""
    what = "guarantees" if kind == "pace" else "deadlines"
    lead = f"no plan of {who} keeps these {what}{beside}: {kept}{fewer}"
    return Conflict(kind, tuple(names), "; ".join([lead, *told, *_wanted(kind, told)]))


def _wanted(kind: str, told: Sequence[str]) -> list[str]:
    return [] if told else [f"a larger {kind}_us of one of them, or fewer jobs, may help"]


class _Late(NamedTuple):
    """A job that needs more than `short` microseconds more, as far as was tried, and for which `enough` are enough."""

    short: int
    enough: int
    job: Job | TaskGraphJob


def _nearest(part: Operations, check: PlanCheck) -> _Late | None:
    """Return the guarantee that needs the least more time if the others are kept, of the few that are tried."""
    best: _Late | None = None
    for job in part.instance.guaranteed_jobs[:_MOST_TRIED]:
        most = largest_objective(part, guaranteed=False) if best is None else best.enough - 1
        found = _least_more(part, job, most, check)
        best = best if found is None else found
    return best


def _told_of_time(part: Operations, late: _Late) -> str:
    """Return which guarantee is missed by how much."""
    others = "if the others keep theirs, " if len(part.instance.guaranteed_jobs) > 1 else ""
    more = f"{late.enough:,} us more"
    if late.enough > late.short + 1:
        more = f"more than {late.short:,} us more, and {late.enough:,} us are enough"
    return f"{others}job {late.job.name} needs {more}: {guarantee_of(_loosened(late.job, late.enough))}"


def _least_more(part: Operations, job: Job | TaskGraphJob, most: int, check: PlanCheck) -> _Late | None:
    """Return how much more time a job needs, bisected as far as answers go; None where `most` is not known to do."""
    jobs = part.instance.jobs

    def is_enough(more: int) -> bool | None:
        loosened = tuple(_loosened(each, more) if each is job else each for each in jobs)
        return check(_compiled(part, altered(part.instance, jobs=loosened)))

    if most < 1 or not is_enough(most):
        return None
    short, enough = 0, most
    while enough - short > 1:
        middle = (short + enough) // 2
        answer = is_enough(middle)
        if answer is None:
            break
        short, enough = (short, middle) if answer else (middle, enough)
    return _Late(short, enough, job)


def _loosened(job: Job | TaskGraphJob, more: int) -> Job | TaskGraphJob:
    """Return a job that guarantees to end, or has an iteration, so many microseconds later."""
    given = {name: getattr(job, name) for name in ("deadline_us", "pace_us")}
    return altered(job, **{name: value + more for name, value in given.items() if value is not None})


def _compiled(part: Operations, instance: Instance) -> Operations:
    """Return a changed instance with the same links, compiled."""
    return compile_instance(instance).with_routes(part.routes)


def _told_of_memory(part: Operations, check: PlanCheck, late: Job | TaskGraphJob) -> Iterator[str]:
    """Yield that the jobs have a plan with memory for all of them at once, and beside which of them a job has none."""
    cluster = part.cluster
    most = {server.gpu_type: sum(part.most_bytes_on(server.gpu_type)) for server in cluster.servers}
    servers = tuple(altered(s, gpu_memory=max(s.gpu_memory, most[s.gpu_type])) for s in cluster.servers)
    ample = altered(part.instance, cluster=altered(cluster, servers=servers))
    if servers == cluster.servers or not check(_compiled(part, ample)):
        return
    yield "memory is the cause: if every GPU had enough for all of these jobs at once, there would be a plan"
    others = [job.name for job in part.instance.jobs if job is not late and _apart(part, late, job)]
    if others:
        follow = ", so that on a GPU they follow one another" if part.horizon == "finite" else ""
        yield f"no GPU has memory for job {late.name} beside {named(others)}{follow}"


def _apart(part: Operations, one: Job | TaskGraphJob, other: Job | TaskGraphJob) -> bool:
    """Return whether no GPU has memory for any worker or slot of the one and any of the other."""
    first, second = _least_needs(part, one), _least_needs(part, other)
    common = [server for server in part.cluster.servers if server.gpu_type in first.keys() & second.keys()]
    return bool(common) and all(
        needed_bytes((first[server.gpu_type], second[server.gpu_type])) > server.gpu_memory for server in common
    )


def _least_needs(part: Operations, asked: Job | TaskGraphJob) -> dict[str, tuple[int, int]]:
    """Return, by type of GPU, the least state and activations of a worker or slot of a job."""
    named = {job.name: job for job in part.jobs} | {graph.job.name: graph for graph in part.task_graphs}
    found: dict[str, tuple[int, int]] = {}
    for place in places_of(named[asked.name]).places:
        own = place.state, place.least
        found.update({kind: min(found.get(kind, own), own) for kind in place.gpu_types})
    return found
