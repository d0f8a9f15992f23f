"""Values of the variables of rows in a plan, and whether the rows hold there (docs/proofs.md: rows of a plan)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jigsaw_opt.checking.network import RouteFinder
from jigsaw_opt.checking.proofs.job_rows import Name, PlanRows
from jigsaw_opt.checking.terms import model_terms
from jigsaw_opt.problem import Instance, JobPlan, Plan


def listed(plan: Plan) -> list[JobPlan]:
    """Return the data-parallel jobs of a plan with all of their iterations, in order of time."""
    found: dict[str, JobPlan] = {}
    for _, _, phase in plan.all_phases():
        starts = [phase.start_us + k * (phase.period_us or 0) for k in range(phase.repeats or 1)]
        for job in phase.data_parallel_jobs:
            iterations = job.moved(*(start.__add__ for start in starts)).iterations
            before = found[job.name].iterations if job.name in found else ()
            found[job.name] = JobPlan(job.name, job.gpus, (*before, *iterations))
    return list(found.values())


def values(rows: PlanRows, instance: Instance, plan: Plan, together: bool = False) -> list[int]:
    """Return the value of each variable in a plan, whose GPUs and, on the cyclic horizon, starts are renamed."""
    by_name = {job.name: job for job in listed(plan)}
    jobs = [by_name[name] for name in dict.fromkeys(str(name[1]) for name in rows.names if name[0] == "spread")]
    # A job of no spread has no correct plan.
    assert {name[1] for name in rows.names if name[0] == "begin"} == {job.name for job in jobs}
    if instance.horizon == "cyclic":
        jobs = _from_the_first_on(jobs, plan.objective)
    asked = {job.name: job for job in instance.jobs}
    renamed = _renamed(instance, jobs, together)
    found: dict[Name, int] = {}
    for job in jobs:
        gpus = [renamed[gpu] for gpu in job.gpus]
        on = [gpu.split("/")[0] for gpu in gpus]
        found["spread", job.name, tuple(on.count(server.name) for server in instance.cluster.servers)] = 1
        finder = RouteFinder(instance.cluster, asked[job.name].route_policy)
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
    if together:
        found = _together(found, jobs)
    return [found.get(name, 0) for name in rows.names]


def _start(operation: Name) -> Name:
    """Return the name of the start of an operation that an order is about: a whole job, a block or a transfer."""
    if len(operation) == 1:
        return "begin", *operation, 1
    return "start" if isinstance(operation[2], str) else "transfer", *operation


def _from_the_first_on(jobs: Sequence[JobPlan], period: int) -> list[JobPlan]:
    """Return jobs that begin within a period after the first of them, which begins at 0."""
    begins = [min(block.start_us for block in job.iterations[0].blocks) for job in jobs]
    moves = ((begin - begins[0]) % period - begin for begin in begins)
    return [job.moved(move.__add__) for job, move in zip(jobs, moves, strict=True)]


def _renamed(instance: Instance, jobs: Sequence[JobPlan], together: bool) -> dict[str, str]:
    """Return new names of all GPUs: on each server, those with the largest lists of workers and levels come first."""
    depth = {job.name: instance.models[job.model].depth for job in instance.data_parallel_jobs}

    def digits(gpu: str) -> list[int]:
        found, below = [int(gpu in job.gpus) for job in jobs], list[int]()
        for job in jobs:
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


def _together(found: Mapping[Name, int], jobs: Sequence[JobPlan]) -> dict[Name, int]:
    """Return the values where one iteration stands for all of its job."""
    merged = {name: value for name, value in found.items() if name[0] not in ("level", "length", "end")}
    for name, value in found.items():
        if name[0] in ("level", "length"):
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
