"""Why an instance has no plan: certain causes before any search, and a minimal conflict after a proof.

Time makes an instance infeasible only where jobs promise a deadline or a pace: blocks and transfers can always run one
after the other. What can besides is the placement (GPU types, memory, links, GPUs of one's own for all workers of a
job) and a depth rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

from jigsaw_opt.problem.clock import looking
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, ceil_div
from jigsaw_opt.problem.critical import candidate_levels, fewest_contributors, least_iteration_us, usable_gpus
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.memory import deepest_level, needed_bytes
from jigsaw_opt.problem.operations import OperationGraph, Operations
from jigsaw_opt.problem.shape import ShapedJob
from jigsaw_opt.solvers.bounds.activities.slot_loads import earliest_end_us
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.engines.stoppable import run_stoppable
from jigsaw_opt.solvers.result import Conflict

__all__ = ["certain_causes", "exceeded_promises", "minimal_conflict", "placement_feasible", "restrict", "too_wide"]

IsFeasible = Callable[[Operations], bool | None]
"""Whether there is a plan for some of the jobs, or None where that stays open."""

_MOST_LITERALS = 100_000
"""A larger placement model takes the engine longer than an explanation is worth."""
_MOST_WORK = 10.0
"""Deterministic units of work that the engine may spend on one placement."""


def certain_causes(operations: Operations) -> tuple[Conflict, ...]:
    """Causes that rule out every plan, found without a search; empty where none of them holds.

    Parameters
    ----------
    operations
        The instance, cut.
    """
    alone = list(_broken_alone(operations)) if operations.instance.promising else []
    fine: set[tuple[object, ...]] = set()
    for job in looking(operations.jobs):
        # Blocks of one model and width are one object, so its identity says which model it is.
        key = id(job.blocks), job.rule, job.iterations, job.route_policy
        if key not in fine:
            causes = tuple(_causes_of(operations, job))
            alone += causes
            if not causes:
                fine.add(key)
    return tuple(alone) or (tuple(_states_exceed_memory(operations)) if operations.jobs else ())


def too_wide(instance: Instance) -> tuple[Conflict, ...]:
    """Jobs of more workers than the cluster has GPUs of their types; empty where there is none.

    Parameters
    ----------
    instance
        What is to be scheduled, not cut: it takes no more memory however many workers there are.
    """
    found = []
    servers, models = instance.cluster.servers, instance.models.items()
    usable = {name: sum(it.gpus for it in servers if it.gpu_type in model.gpu_types) for name, model in models}
    for job in looking(instance.jobs):
        if isinstance(job, Job) and 0 < usable[job.model] < job.workers:
            message = _too_few(job.name, job.workers, usable[job.model], instance.cluster.gpu_count)
            found.append(Conflict("reach", (job.name,), message))
    return tuple(found)


def minimal_conflict(operations: Operations, is_feasible: IsFeasible | None = None) -> Conflict:
    """A smallest set of jobs, by inclusion, that has no plan, for an instance proven to have none.

    QuickXplain (Junker, AAAI 2004) over the jobs: about ``k log(n/k)`` checks for ``k`` of ``n`` jobs. Where a check
    stays open the jobs in question are kept, so the set then still has no plan but may not be minimal.

    Parameters
    ----------
    operations
        The instance, cut; it has no plan.
    is_feasible
        Tells whether some of its jobs have a plan; by default `placement_feasible`.
    """
    if operations.instance.promising and (operations.shaped or placement_feasible(operations) is not False):
        return _broken_together(operations)
    if operations.shaped:
        names = tuple(job.name for job in operations.instance.jobs)
        placed = "slots and workers" if operations.is_mixed else "the slots"
        routed = " and has routes that keep their policies" if operations.instance.policed else ""
        why = f"no placement of {placed} leaves room for what they hold{routed}"
        return Conflict("search", names, f"{', '.join(names)}: {why}")
    check = is_feasible or placement_feasible

    def holds(jobs: Sequence[int]) -> bool:
        return not jobs or check(restrict(operations, jobs)) is not False

    conflict = sorted(_quickxplain(holds, (), tuple(range(len(operations.jobs))), False))
    part = restrict(operations, conflict)
    certain = certain_causes(part)
    if certain:
        return certain[0]
    if len(part.jobs) == 1 and part.jobs[0].route_policy is not None:
        return Conflict("reach", (part.jobs[0].name,), _no_routes(part.jobs[0]))
    return Conflict("search", tuple(job.name for job in part.jobs), _together(part))


def exceeded_promises(operations: Operations, bound: int) -> Conflict | None:
    """Promises that no plan keeps, for it has an objective of at least `bound`; None where the bound leaves that open.

    Parameters
    ----------
    operations
        The instance, cut.
    bound
        A lower bound of the objective.
    """
    limit = operations.objective_limit
    if limit is None or bound <= limit:
        return None
    if operations.horizon == "cyclic":
        return _too_fast(operations, bound, "no period is shorter than")
    names = tuple(job.name for job in operations.instance.promising)
    message = f"the {operations.objective} of no plan is below {bound:,}, and the deadlines of all jobs allow {limit:,}"
    wanted = f"the latest deadline has to be at least {bound - limit:,} us later"
    return Conflict("deadline", names, f"{message}; {wanted}" if operations.objective == "makespan" else message)


def restrict(operations: Operations, jobs: Iterable[int]) -> Operations:
    """The instance with only some of its jobs, given by index in the order wanted.

    Parameters
    ----------
    operations
        The instance, cut.
    jobs
        Indices of the jobs to keep.
    """
    kept = tuple(jobs)
    instance = replace(operations.instance, jobs=tuple(operations.instance.jobs[k] for k in kept))
    part = replace(operations, instance=instance, jobs=tuple(operations.jobs[k] for k in kept))
    part.__dict__["routes"] = operations.routes  # the same cluster: its routes stay known
    return part


def placement_feasible(operations: Operations) -> bool | None:
    """Whether all workers find a place, which is whether there is a plan; None where that stays open.

    The answer takes a limited amount of deterministic work, and is the same on every machine. It is open
    without OR-Tools, above a size, and for numbers beyond the engine's.

    Parameters
    ----------
    operations
        The instance, cut.
    """
    from importlib.util import find_spec

    from jigsaw_opt.formulations.cpsat_placement import build, literal_count

    if (
        find_spec("ortools") is None
        or literal_count(operations) > _MOST_LITERALS
        or _largest(operations) > EXACT_IN_64_BITS
    ):
        return None
    from ortools.sat.python import cp_model

    solver = new_solver()
    solver.parameters.max_deterministic_time = _MOST_WORK
    model = build(operations)
    status = run_stoppable(lambda: solver.solve(model), solver.stop_search, "placement")
    return {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(status)


def _largest(operations: Operations) -> int:
    """No sum in the placement model exceeds this."""
    memory = max(server.gpu_memory for server in operations.cluster.servers) * (len(operations.jobs) + 1)
    return max(memory, *(4 * job.iterations * job.levels * operations.cluster.gpu_count for job in operations.jobs))


def _quickxplain(
    holds: Callable[[Sequence[int]], bool], given: tuple[int, ...], jobs: tuple[int, ...], grown: bool
) -> tuple[int, ...]:
    """Those of `jobs` in a minimal conflict with the background `given`; `grown` says that it is not checked yet."""
    if grown and not holds(given):
        return ()
    if len(jobs) == 1:
        return jobs
    first, second = jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]
    right = _quickxplain(holds, given + first, second, True)
    left = _quickxplain(holds, given + right, first, bool(right))
    return left + right


class _MemoryNeed(NamedTuple):
    """So many workers of a job need so much memory each, in bytes, because they reach a level."""

    workers: int
    level: int
    memory: int


def _causes_of(operations: Operations, job: OperationGraph) -> Iterator[Conflict]:
    """Why one job has no place even on an empty cluster; only the first cause that explains the others."""
    rule, most = job.rule, job.levels * job.slots * job.iterations
    if rule.min_total > most:
        asked = f"asks for {rule.min_total:,} levels in all, and full depth has only {most:,}"
        yield Conflict("depth", (job.name,), f"the mean depth of job {job.name} {asked}; choose one of at most 1")
    servers = [server for server in operations.cluster.servers if server.gpu_type in job.gpu_types]
    if not servers:
        yield Conflict("gpu_type", (job.name,), _no_type(operations, job))
    elif sum(server.gpus for server in servers) < job.slots:
        gpus = sum(server.gpus for server in servers)
        yield Conflict("reach", (job.name,), _too_few(job.name, job.slots, gpus, operations.instance.cluster.gpu_count))
    else:
        yield from _no_memory_or_path(operations, job, servers)


def _broken_alone(operations: Operations) -> Iterator[Conflict]:
    """Promises that a job cannot keep even alone on the cluster."""
    limit = operations.objective_limit
    for number, job in enumerate(looking(operations.jobs)):
        gpus = usable_gpus(operations, job)
        span = job.iterations * least_iteration_us(operations, job, gpus) if gpus else 0
        yield from _late(job.name, job.release_us + span, operations.deadlines[number])
        if operations.horizon == "cyclic" and limit is not None and span > limit:
            yield _too_fast(operations, span, f"the iterations of job {job.name} take at least")
    for graph in looking(operations.shaped if operations.horizon == "finite" else ()):
        yield from _late(graph.job.name, earliest_end_us(graph, operations.cluster), graph.job.deadline_us)


def _late(name: str, end_us: int, deadline_us: int | None) -> Iterator[Conflict]:
    if deadline_us is not None and end_us > deadline_us:
        message = f"job {name} ends no earlier than {end_us:,} us even alone, and promises to end by {deadline_us:,} us"
        wanted = f"a deadline at least {end_us - deadline_us:,} us later is wanted, or less work or an earlier release"
        yield Conflict("deadline", (name,), f"{message}; {wanted}")


def _too_fast(operations: Operations, least_us: int, why: str) -> Conflict:
    """The tightest pace asks for a period below the least one."""
    job = min(operations.instance.promising, key=lambda it: (it.pace_us or 0) * it.iterations)
    message = f"{why} {least_us:,} us, and job {job.name} promises {_promise_of(job)}"
    wanted = f"an iteration every {ceil_div(least_us, job.iterations):,} us is the most that may be promised"
    return Conflict("pace", (job.name,), f"{message}; {wanted}")


def _broken_together(operations: Operations) -> Conflict:
    told = ", ".join(f"{job.name} ({_promise_of(job)})" for job in operations.instance.promising)
    names = tuple(job.name for job in operations.instance.jobs)
    kind = "pace" if operations.horizon == "cyclic" else "deadline"
    message = f"no plan of all jobs keeps what these promise: {told}"
    return Conflict(kind, names, f"{message}; a larger {kind}_us of one of them, or fewer jobs, may help")


def _promise_of(job: Job | ShapedJob) -> str:
    if job.deadline_us is not None:
        return f"to end by {job.deadline_us:,} us"
    return f"{job.iterations:,} iterations, one every {job.pace_us:,} us"


def _no_type(operations: Operations, job: OperationGraph) -> str:
    have = ", ".join(sorted({server.gpu_type for server in operations.cluster.servers}))
    can = ", ".join(job.gpu_types) or "none"
    why = f"its model has times for {can}, the cluster has {have}"
    wanted = f"times of the model for {have}, or a server with GPUs of type {can}, are wanted"
    return f"job {job.name} runs on none of the cluster's GPU types: {why}; {wanted}"


def _too_few(job: str, workers: int, gpus: int, whole: int) -> str:
    kinds = "" if gpus == whole else f" of its types (of {whole:,} in all)"
    told = f"job {job} has {workers:,} workers on GPUs of their own, and the cluster has {gpus:,} GPUs{kinds}"
    return f"{told}; {workers - gpus:,} more GPUs are wanted, or at most {gpus:,} workers"


def _no_memory_or_path(operations: Operations, job: OperationGraph, servers: Sequence[Server]) -> Iterator[Conflict]:
    for need in _memory_needs(job):
        room = sum(server.gpus for server in servers if server.gpu_memory >= need.memory)
        if room < need.workers:
            yield Conflict("memory", (job.name,), _no_memory(job, need, room, servers))
            return
    parts = _parts(operations, job)
    if all(sum(server.gpus for server in part) < job.slots for part in parts):
        gpus = max(sum(server.gpus for server in part) for part in parts)
        links = "links" if job.route_policy is None else f"links that its route policy {job.route_policy!r} allows"
        message = (
            f"job {job.name} has {job.slots:,} workers, and no more than {gpus:,} of its GPUs are joined by {links}"
        )
        wanted = f"links that join {job.slots - gpus:,} more of them are wanted, or at most {gpus:,} workers"
        yield Conflict("reach", (job.name,), f"{message}; {wanted}")
    elif not any(_has_place(job, part) for part in parts):
        message = f"no part of the cluster that links join has both the GPUs and the memory for job {job.name}"
        wanted = f"links between more of its GPUs, fewer than {job.slots:,} workers or a shallower depth rule may help"
        yield Conflict("memory", (job.name,), f"{message} at the depth that its rule asks for; {wanted}")


def _memory_needs(job: OperationGraph) -> list[_MemoryNeed]:
    """What the depth rule asks for in every iteration, level by level, deepest first."""
    levels = reversed(candidate_levels(job))
    needs = ((d, needed_bytes([(job.state_bytes, job.activation_bytes[d - 1])])) for d in levels)
    return [_MemoryNeed(fewest_contributors(job, d), d, need) for d, need in needs]


def _no_memory(job: OperationGraph, need: _MemoryNeed, room: int, servers: Sequence[Server]) -> str:
    who = "one worker" if need.workers == 1 else f"{need.workers:,} workers"
    bytes_each = f"{need.memory:,} bytes ({job.state_bytes:,} of state and the rest of activations)"
    have = max(server.gpu_memory for server in servers)
    found = f"the largest GPU of its types has {have:,}" if room == 0 else f"only {room:,} GPUs of its types have them"
    told = f"job {job.name} has {who} at level {need.level} in every iteration, each needs {bytes_each}, and {found}"
    return told + _more_memory(need, servers)


def _more_memory(need: _MemoryNeed, servers: Sequence[Server]) -> str:
    """How much more is wanted at least, and where; nothing where there are too few GPUs in any case."""
    ranked = sorted(servers, key=lambda server: -server.gpu_memory)
    last = next(islice(chain.from_iterable([server] * server.gpus for server in ranked), need.workers - 1, None), None)
    if last is None:
        return ""
    return f"; at least {_amount(need.memory - last.gpu_memory)} more are wanted, as on each GPU of server {last.name}"


def _amount(size: int) -> str:
    """Bytes in a unit that is read at once, rounded up."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{-(-size * 10 // unit) / 10:g} {name}"
    return f"{size:,} bytes"


def _parts(operations: Operations, job: OperationGraph) -> list[list[Server]]:
    """Servers of the job's types, by the part of the cluster that links join which its routes may use."""
    component = operations.routes.under(job.route_policy).component
    parts: dict[int, list[Server]] = {}
    for server, part in zip(operations.cluster.servers, component, strict=True):
        if server.gpu_type in job.gpu_types:
            parts.setdefault(part, []).append(server)
    return list(parts.values())


def _has_place(job: OperationGraph, servers: Sequence[Server]) -> bool:
    """Whether the servers alone have GPUs with the memory that every level asks for, and for the least total."""
    for need in _memory_needs(job):
        if sum(server.gpus for server in servers if server.gpu_memory >= need.memory) < need.workers:
            return False
    if job.rule.multiset is not None:
        return True
    on_server = ([deepest_level(job, server.gpu_memory)] * server.gpus for server in servers)
    depths = sorted(chain.from_iterable(on_server), reverse=True)
    most = job.iterations * sum(depths[: job.slots])
    return most >= min(job.rule.min_total, job.iterations * job.slots * job.levels)


def _states_exceed_memory(operations: Operations) -> Iterator[Conflict]:
    """The states of all jobs that depend on some GPU types exceed those GPUs' memory together."""
    usable = {server.gpu_type for server in operations.cluster.servers}
    for types in {frozenset(usable & set(job.gpu_types)) for job in operations.jobs} | {frozenset(usable)}:
        jobs = [job for job in looking(operations.jobs) if usable & set(job.gpu_types) <= types]
        least = min(job.activation_bytes[candidate_levels(job)[0] - 1] for job in jobs)
        # A GPU that holds any worker keeps the activations of one.
        memory = sum(s.gpus * max(0, s.gpu_memory - least) for s in operations.cluster.servers if s.gpu_type in types)
        states = sum(job.slots * job.state_bytes for job in jobs)
        if states > memory:
            workers, kinds = sum(job.slots for job in jobs), ", ".join(sorted(types))
            message = (
                f"the states of {workers:,} workers take {states:,} bytes, and the GPUs of type {kinds} "
                f"have {memory:,} beside the activations; {_amount(states - memory)} more in all are wanted"
            )
            yield Conflict("memory", tuple(job.name for job in jobs), message)
            return


def _no_routes(job: OperationGraph) -> str:
    """Why a job has no place of its own though links join enough GPUs."""
    kept = f"routes that keep its route policy {job.route_policy!r} join no servers that have room for all of them"
    return f"job {job.name} has {job.slots:,} workers, and {kept}; a wider route policy or fewer workers may help"


def _together(operations: Operations) -> str:
    """What a minimal set of jobs asks for, and what there is."""
    asked = ", ".join(
        f"{job.name} ({job.slots:,} workers of {job.state_bytes:,} bytes of state and up to "
        f"{job.activation_bytes[-1]:,} of activations)"
        for job in operations.jobs
    )
    have = ", ".join(f"{s.name} ({s.gpus:,} GPUs of {s.gpu_memory:,} bytes)" for s in operations.cluster.servers[:8])
    more = len(operations.cluster.servers) - 8
    rest = f" and {more:,} more servers" if more > 0 else ""
    placed = "no place together under their route policies" if operations.instance.policed else "no place together"
    return f"these jobs have {placed}, though any fewer of them do: {asked}; the cluster has {have}{rest}"
