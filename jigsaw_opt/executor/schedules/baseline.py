"""The usual way: the same jobs on the same GPUs at full depth, one at a time on its GPUs; and some jobs alone.

Needs no torch.

``fifo`` runs each job to its end, in the order of release; ``gang`` gives each job in turn its GPUs for one iteration.
In both a job holds all its GPUs from its first block to its last transfer; jobs without a common GPU run side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import UsageError, argument
from jigsaw_opt.executor.schedules.presence import PhasePart, phase_parts, seams
from jigsaw_opt.executor.schedules.request import ReplayRequest
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble
from jigsaw_opt.problem.depth import FullDepth
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.measured.replay import Policy
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.activities.flat import flatten
from jigsaw_opt.solvers.activities.ranks import in_order
from jigsaw_opt.solvers.activities.repeating import Waits, earliest, least_period
from jigsaw_opt.solvers.activities.timetables import gpus_of, levels_of, planned_network, starts_of, timetable_of


def alone_part(instance: Instance, plan: Plan, names: Collection[str]) -> PhasePart:
    """Return some jobs of a plan as if there were no others.

    GPUs and links take their operations in the order of the plan. The period is the least one of this order; on the
    finite horizon all start as early as they can.
    """
    numbers = tuple(number for number, job in enumerate(instance.jobs) if job.name in names)
    own = altered(instance, jobs=tuple(instance.jobs[number] for number in numbers))
    kept = plan.with_jobs(tuple(plan.jobs[number] for number in numbers))
    operations, timetable = compile_instance(own), Timetable.of(kept.jobs, kept.period_us)
    network, period = planned_network(operations, timetable, within_slots=True), kept.period_us
    starts = network.with_milestones(starts_of(timetable), period)
    flat = flatten(network)
    order = in_order(flat, starts)
    if period is None:
        starts = earliest(flat, order)
    else:
        found = least_period(_waits(network, starts, period), order, 1, period)
        assert found is not None, "the plan's own period is long enough"
        period, starts = found
    gpus, levels = gpus_of(operations, timetable), levels_of(timetable)
    jobs = timetable_of(operations, network.jobs, gpus, starts, period, levels).plans_of(own)
    length = max(job.end_us for job in jobs) if period is None else period
    made = replace(kept.with_jobs(jobs).with_period(period), instance_sha256=instance_sha256(own))
    made = replace(made, status="feasible", objective=length, bound=0, solver={"name": "alone"})
    return PhasePart(next(phase for _, _, phase in made.all_phases()), own, made, numbers, (0,) * len(numbers), 1)


def _waits(network: ActivityNetwork, starts: Sequence[int], period: int) -> Waits:
    """Return what operations wait for, and the order in which GPUs and links take them in a cyclic plan."""
    lengths, turns = [each.duration_us for each in network.activities], defaultdict[object, list[tuple[int, int]]](list)
    found: list[list[tuple[int, int, int]]] = [[] for _ in lengths]
    for before, after, periods, offset in network.waits:
        found[after].append((before, lengths[before] if offset is None else offset, periods))
    for number, activity in enumerate(network.activities):
        for resource in (*activity.gpus, *activity.links) if activity.duration_us else ():
            turns[resource].append((starts[number] % period, number))
    for own in turns.values():
        order = [number for _, number in sorted(own)]
        for before, after in zip(order, (*order[1:], order[0]), strict=True):
            turn = starts[before] // period - starts[after] // period + (after == order[0])
            found[after].append((before, lengths[before], turn))
    return found


def at_full_depth(instance: Instance) -> Instance:
    """Return the instance whose jobs all go to full depth and whose objective is the time that all of them take.

    Guarantees of the jobs are left out: the usual way knows none.
    """
    jobs = tuple(altered(job, depth=FullDepth(), deadline_us=None, pace_us=None) for job in instance.data_parallel)
    return altered(instance, jobs=jobs, objective="period" if instance.horizon == "cyclic" else "makespan")


def baseline_plan(instance: Instance, plan: Plan, policy: Policy) -> Plan:
    """Return the plan of the usual way, for the instance `at_full_depth`; every worker sits where `plan` has it."""
    usual = at_full_depth(instance)
    operations = compile_instance(usual)
    jobs = assemble(operations, _in_turns(operations, plan, _turns(operations, policy)))
    length = max(job.end_us for job in jobs)
    return Plan.of_jobs(
        instance=usual.name,
        instance_sha256=instance_sha256(usual),
        status="feasible",
        objective=length,
        bound=0,
        period_us=length if instance.horizon == "cyclic" else None,
        jobs=jobs,
        solver={"name": policy},
    )


def baseline_part(request: ReplayRequest) -> PhasePart | None:
    """Return what is carried out after the plan, to compare it with; None where nothing is."""
    if request.baseline is None:
        return None
    if request.baseline == "alone":
        return alone_part(request.instance, request.plan, request.foreground)
    [[part]] = phase_parts(request.instance, request.plan)
    if request.baseline == "gang" and len(seams(part.instance, part.plan)) > 1:
        raise UsageError(
            "jobs that take turns after each iteration are in memory together, and these do not fit: "
            + argument("baseline", "fifo"),
            code="does-not-fit",
            path="baseline",
        )
    return replace(part, plan=baseline_plan(request.instance, request.plan, request.baseline), number=1)


def _turns(operations: Operations, policy: Policy) -> Iterator[int]:
    """Yield jobs in the order in which their iterations get GPUs."""
    order = sorted(range(len(operations.jobs)), key=lambda job: operations.jobs[job].release_us)
    if policy == "fifo":
        return (job for job in order for _ in range(operations.jobs[job].iterations))
    rounds: Iterable[tuple[int | None, ...]] = zip_longest(*([job] * operations.jobs[job].iterations for job in order))
    return (job for turn in rounds for job in turn if job is not None)


def _in_turns(operations: Operations, plan: Plan, turns: Iterable[int]) -> list[JobDecision]:
    """Return what jobs do whose iterations follow one another on GPUs and links, every worker in its place."""
    places, free = gpus_of(operations, Timetable.of(plan.jobs, None)), defaultdict[tuple[int, int] | int, int](int)
    found: list[tuple[list[list[int]], ...]] = [([], [], []) for _ in places]
    for number in turns:
        job, gpus, transfers = operations.jobs[number], places[number], list[int]()
        start = max(job.release_us, *(free[gpu] for gpu in gpus))
        tables = [block.duration_us[operations.cluster.servers[gpus[block.slot][0]].gpu_type] for block in job.blocks]
        channel = operations.routes.under(job.route_policy).channel(Counter(server for server, _ in gpus))
        assert channel is not None, "the plan was checked"
        end = start
        for operation in job.transfers:
            ready = start + max(table[operation.bucket - 1] for table in tables)
            transfers.append(max(ready, end, *(free[link] for link in channel.links), 0))
            end = transfers[-1] + job.transfer_us(operation.bucket, job.slots, channel)
            free.update(dict.fromkeys(channel.links, end))
        end = max(end, start + max(table[-1] for table in tables))
        free.update(dict.fromkeys(gpus, end))
        for own, value in zip(found[number], ([job.levels] * job.slots, [start] * job.slots, transfers), strict=True):
            own.append(value)
    return [JobDecision(gpus, *own) for gpus, own in zip(places, found, strict=True)]
