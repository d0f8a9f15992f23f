"""Values of the variables of rows in a plan, and whether the rows hold there (docs/proofs.md: rows of a plan)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from jigsaw_opt.checking.network import RouteFinder
from jigsaw_opt.checking.proofs.facts.task_graphs import TaskGraphFacts
from jigsaw_opt.checking.proofs.rows.job_rows import Name, PlanRows
from jigsaw_opt.checking.terms import model_terms
from jigsaw_opt.problem import Instance, JobPlan, Plan, TaskGraph, TaskGraphJobPlan
from jigsaw_opt.problem.plan import TimedOperation

AnyJobPlan = JobPlan | TaskGraphJobPlan


def listed(plan: Plan) -> dict[str, AnyJobPlan]:
    """Return the jobs of a plan by name, with all of their iterations in order of time."""
    found: dict[str, AnyJobPlan] = {}
    for _, _, phase in plan.all_phases():
        starts = [phase.start_us + k * (phase.period_us or 0) for k in range(phase.repeats or 1)]
        for job in phase.jobs:
            iterations = job.moved(*(start.__add__ for start in starts)).iterations
            before = found[job.name].iterations if job.name in found else ()
            found[job.name] = job.with_iterations((*before, *iterations))
    return found


def values(rows: PlanRows, instance: Instance, plan: Plan, together: bool = False) -> list[int]:
    """Return the value of each variable in a plan, whose GPUs and, on the cyclic horizon, starts are renamed."""
    by_name, asked = listed(plan), {job.name: job for job in instance.jobs}
    jobs = [by_name[name] for name in dict.fromkeys(str(name[1]) for name in rows.names if name[0] == "spread")]
    # A job of no spread has no correct plan.
    assert {name[1] for name in rows.names if name[0] == "begin"} == {job.name for job in jobs}
    if instance.horizon == "cyclic":
        jobs = _from_the_first_on([_close(job, plan.objective) for job in jobs], instance, plan.objective)
    jobs = [_in_order(instance, job) if isinstance(job, TaskGraphJobPlan) else job for job in jobs]
    renamed = _renamed(instance, jobs, together)
    found: dict[Name, int] = {}
    for job in jobs:
        gpus = [renamed[gpu] for gpu in job.gpus]
        finder = RouteFinder(instance.cluster, asked[job.name].route_policy)
        if isinstance(job, TaskGraphJobPlan):
            _operations(found, instance, job, gpus, finder)
            continue
        on = [gpu.split("/")[0] for gpu in gpus]
        found["spread", job.name, tuple(on.count(server.name) for server in instance.cluster.servers)] = 1
        servers = [server.name for server in instance.cluster.servers]
        exchange = finder.exchange([servers.index(name) for name in on])
        assert exchange is not None
        found |= {("uses", job.name, instance.cluster.links[link].name): 1 for link in exchange.links}
        _iterations(found, instance, job, gpus)
    for name in rows.names:
        if name[0] == "order":
            half = len(name) // 2
            one, other = (found[_start(o)] for o in (name[1 : half + 1], name[half + 1 :]))
            # The least number of periods after which a repetition of the other operation starts no sooner.
            turns = -(-(one - other) // plan.objective)
            found[name] = int(one <= other) if instance.horizon == "finite" else turns
    _intervals(found, rows.names, instance, plan.objective)
    if together:
        found = _together(found, jobs)
    return [found.get(name, 0) for name in rows.names]


def _intervals(found: dict[Name, int], names: Sequence[Name], instance: Instance, period: int) -> None:
    """Add what memory intervals hold when blocks start, and the most of each slot; cyclic: with all of their copies."""
    shapes, sums = {job.name: job.shape for job in instance.task_graph_jobs}, Counter[Name]()
    for name in names:
        if name[0] != "holds":
            continue
        _, job, i, v, k, x = name
        shape = shapes[str(job)]
        interval = shape.holds[int(str(v)) - 1]
        moment = found["start", job, k, x]
        start, end = found["start", job, i, interval.start], found["done", job, i, interval.end]
        copies = int(start <= moment < end)
        if instance.horizon == "cyclic":
            copies = max(0, (moment - start) // period - (moment - end) // period)
        found[name] = copies * interval.bytes
        slot = interval.slot or next(block.slots[0] for block in shape.blocks if block.name == interval.start)
        sums["peak", job, slot, k, x] += found[name]
    for name, held in sums.items():
        found[name[:3]] = max(found.get(name[:3], 0), held)


def _start(operation: Name) -> Name:
    """Return the name of the start of an operation that an order is about: a whole job, a block or a transfer."""
    if len(operation) == 1:
        return "begin", *operation, 1
    return "start" if isinstance(operation[2], str) else "transfer", *operation


def _close(job: AnyJobPlan, period: int) -> AnyJobPlan:
    """Return a task-graph job with operations moved by whole periods, so that there are no gaps of two periods."""
    if isinstance(job, JobPlan):
        return job
    starts = sorted({operation.start_us for operation in job.operations})
    moves, now = {starts[0]: 0}, 0
    for before, after in pairwise(starts):
        now -= max(0, (after - before) // period - 1) * period
        moves[after] = now
    return job.moved(lambda start: start + moves[start])


def _from_the_first_on(jobs: Sequence[AnyJobPlan], instance: Instance, period: int) -> list[AnyJobPlan]:
    """Return jobs that begin within a period after the first of them, which begins at 0."""
    begins = [_origin(job, instance) for job in jobs]
    moves = ((begin - begins[0]) % period - begin for begin in begins)
    return [job.moved(move.__add__) for job, move in zip(jobs, moves, strict=True)]


def _in_order(instance: Instance, job: TaskGraphJobPlan) -> TaskGraphJobPlan:
    """Return a job whose components alike start in their order in the first iteration."""
    asked = next(each for each in instance.task_graph_jobs if each.name == job.name)
    first, source = job.iterations[0].operations, {}
    for alike in TaskGraphFacts(instance, asked).components_alike():
        for own, taken in zip(alike, sorted(alike, key=lambda members: first[members[0]].start_us), strict=True):
            source |= dict(zip(own, taken, strict=True))
    blocks, iterations = len(asked.shape.blocks), []
    for each in job.iterations:
        runs = tuple(each.operations[source[x]] for x in range(len(source)))
        iterations.append(replace(each, blocks=runs[:blocks], transfers=runs[blocks:]))
    return replace(job, iterations=tuple(iterations))


def _origin(job: AnyJobPlan, instance: Instance) -> int:
    """Return the first start of a block in the first iteration, of a task graph in its first slot."""
    blocks = job.iterations[0].blocks
    if isinstance(job, JobPlan):
        return min(block.start_us for block in blocks)
    shape = _shape(instance, job)
    return min(run.start_us for run, x in zip(blocks, shape.blocks, strict=True) if shape.slots[0].name in x.slots)


def _shape(instance: Instance, job: AnyJobPlan) -> TaskGraph:
    return next(asked.shape for asked in instance.task_graph_jobs if asked.name == job.name)


def _renamed(instance: Instance, jobs: Sequence[AnyJobPlan], together: bool) -> dict[str, str]:
    """Return new names of all GPUs: on each server, those with the largest lists of workers and levels come first."""
    depth = {job.name: instance.models[job.model].depth for job in instance.data_parallel_jobs}

    def digits(gpu: str) -> list[int]:
        found, below = list[int](), list[int]()
        for job in jobs:
            if isinstance(job, TaskGraphJobPlan):
                found += [int(gpu == own) for own in job.gpus]
                continue
            found.append(int(gpu in job.gpus))
            here = [each.blocks[job.gpus.index(gpu)].level if gpu in job.gpus else 0 for each in job.iterations]
            # Where one iteration stands for all, a digit is the number of those that have the level.
            for levels in [here] if together else [[level] for level in here]:
                below += [sum(level >= d for level in levels) for d in range(depth[job.name], 1, -1)]
        return found + below

    renamed = {}
    for server in instance.cluster.servers:
        names = [f"{server.name}/{k}" for k in range(server.gpus)]
        renamed |= dict(zip(sorted(names, key=digits, reverse=True), names, strict=True))
    return renamed


def _operations(
    found: dict[Name, int], instance: Instance, job: TaskGraphJobPlan, gpus: Sequence[str], finder: RouteFinder
) -> None:
    shape, servers = _shape(instance, job), [server.name for server in instance.cluster.servers]
    at = {slot.name: gpu for slot, gpu in zip(shape.slots, gpus, strict=True)}
    found["spread", job.name, tuple(gpu.split("/")[0] for gpu in gpus)] = 1
    found |= {("on", job.name, slot, gpu): 1 for slot, gpu in at.items()}
    found |= {("slot", job.name, slot): 1 for slot in at}
    number = {slot: servers.index(gpu.split("/")[0]) for slot, gpu in at.items()}
    for transfer in shape.transfers:
        if transfer.among:
            terms = finder.exchange([number[slot] for slot in transfer.among])
        else:
            terms = finder.passage(number[transfer.source or ""], number[transfer.target or ""])
        assert terms is not None
        links = (instance.cluster.links[link].name for link in terms.links)
        found |= {("uses", job.name, transfer.name, link): 1 for link in links}
    for block in shape.blocks:
        for slot in block.slots:
            own = block.duration_us[instance.cluster.servers[number[slot]].gpu_type]
            found["load", at[slot]] = found.get(("load", at[slot]), 0) + own * len(job.iterations)
    for i, iteration in enumerate(job.iterations, 1):
        runs = dict(zip(shape.operations, iteration.operations, strict=True))
        for name, run in runs.items():
            found["start", job.name, i, name], found["done", job.name, i, name] = run.start_us, run.end_us
            found["length", job.name, name] = run.end_us - run.start_us
        groups: dict[tuple[str, ...], list[TimedOperation]] = {(): list(runs.values())}
        groups |= {(slot,): [runs[block.name] for block in shape.blocks if slot in block.slots] for slot in at}
        for slots, members in groups.items():
            found["begin", job.name, i, *slots] = min(run.start_us for run in members)
            found["end", job.name, i, *slots] = max(run.end_us for run in members)


def _iterations(found: dict[Name, int], instance: Instance, job: JobPlan, gpus: Sequence[str]) -> None:
    activations = model_terms(
        instance.models[next(j.model for j in instance.jobs if j.name == job.name)]
    ).activation_bytes
    numbers = [f"{server.name}/{k}" for server in instance.cluster.servers for k in range(server.gpus)]
    for i, iteration in enumerate(job.iterations, 1):
        begin = found["begin", job.name, i] = min(block.start_us for block in iteration.blocks)
        found["end", job.name, i] = iteration.end_us
        for gpu in numbers:
            found["start", job.name, i, gpu] = found["done", job.name, i, gpu] = begin
        for gpu, block in zip(gpus, iteration.blocks, strict=True):
            found["on", job.name, gpu] = 1
            found["start", job.name, i, gpu], found["done", job.name, i, gpu] = block.start_us, block.end_us
            length = found["length", job.name, i, gpu] = block.end_us - block.start_us
            found["load", gpu] = found.get(("load", gpu), 0) + length
            found |= {("level", job.name, i, gpu, d): 1 for d in range(2, block.level + 1)}
            held = "activations", numbers.index(gpu)
            found[held] = max(found.get(held, 0), activations[block.level - 1])
        for transfer in iteration.transfers:
            b, start, end = transfer.bucket, transfer.start_us, transfer.end_us
            found["transfer", job.name, i, b], found["transferred", job.name, i, b] = start, end
            found["lasts", job.name, i, b] = end - start
            reach = sum(block.level >= b for block in iteration.blocks)
            found |= {("contributors", job.name, i, b, c): 1 for c in range(reach + 1)}


def _together(found: Mapping[Name, int], jobs: Sequence[AnyJobPlan]) -> dict[Name, int]:
    """Return the values where one iteration stands for all of its job."""
    merged = {name: value for name, value in found.items() if name[0] not in ("level", "length", "end")}
    for name, value in found.items():
        if name[0] in ("level", "length") and len(name) > 3:
            one = (*name[:2], 1, *name[3:])
            merged[one] = merged.get(one, 0) + value
    return merged | {("end", job.name, 1): found["end", job.name, len(job.iterations)] for job in jobs}


def broken(rows: PlanRows, numbers: Sequence[int]) -> list[object]:
    """Return the rows and bounds that values break."""
    bounds = zip(rows.names, rows.low, numbers, rows.high, strict=True)
    wrong: list[object] = [each for each in bounds if not each[1] <= each[2] <= each[3]]
    for terms, side in rows.rows:
        if sum(a * numbers[v] for a, v in terms) > side:
            wrong.append(([(a, rows.names[v], numbers[v]) for a, v in terms], side))
    return wrong
