"""The foreground alone: job by job where each fits on GPUs of its own, or all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import InfeasibleError, OutOfTimeError
from jigsaw_opt.planning.fill.loads import restricted
from jigsaw_opt.planning.fill.stretching import KeptPlan
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.plan import JobPlan, Plan, TaskGraphJobPlan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.task_graph import TaskGraphJob
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status
from jigsaw_opt.solvers.solve import solve

_MORE = 3.0
"""Where its share of the limits gives no plan, the foreground gets this multiple of it once more."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A plan of the foreground alone, and a period that none is below."""

    plan: Plan
    bound: int


def alone(instance: Instance, part: Callable[[float], Options]) -> Alone:
    """Find a plan of the foreground alone.

    Jobs that are alike are solved once and each put on a server of its own, as far as a job keeps to one. What a job
    takes alone is a bound of what all take together, so a plan that attains it is not looked for any longer.

    The plan, and a period in microseconds that none is below.

    `part`: options for a share of what there is for it.
    """
    first = _apart(instance, part) if len(instance.jobs) > 1 else None
    if first is not None and first.plan.objective == first.bound:
        return first
    result = _solved(instance, part(0.5 if first is not None else 1.0))
    if first is None and result.plan is None:
        result = _solved(instance, part(_MORE))
    found = [first] if first is not None else []
    if result.plan is not None:
        found.append(Alone(result.plan, result.bound))
    if not found:
        raise OutOfTimeError("no plan of the foreground alone was found within its share of the limits")
    best = min(found, key=lambda result: result.plan.objective)
    return replace(best, bound=min(best.plan.objective, max(result.bound, *(result.bound for result in found))))


def _solved(instance: Instance, options: Options) -> Result:
    result = solve(instance, "auto", replace(options, listed=True))
    if result.status is Status.INFEASIBLE:
        raise InfeasibleError(
            "; ".join(conflict.message for conflict in result.conflicts) or "the foreground alone has no plan"
        )
    return result


def _apart(instance: Instance, part: Callable[[float], Options]) -> Alone | None:
    """Return each job on a server of its own kind, or None where some job needs several or finds none."""
    classes = list[Job | TaskGraphJob]()
    for job in instance.jobs:
        if altered(job, name="") not in classes:
            classes.append(altered(job, name=""))
    results = list[tuple[KeptPlan, int]]()
    for each in classes:
        name = next(job.name for job in instance.jobs if altered(job, name="") == each)
        one = restricted(instance, {name: each.iterations})
        small, bound = _on_one_server(one), lower_bound(compile_instance(one)).value
        found = next(
            (made for share in (0.5, 2.0) if (made := _plan(small, part(share / len(classes)))) is not None), None
        )
        if found is None:
            return None
        results.append((KeptPlan(compile_instance(small), found), bound))
    period = max(kept.period_us for kept, _ in results)
    used, jobs = Counter[int](), list[JobPlan | TaskGraphJobPlan]()
    for job in instance.jobs:
        kept, _ = results[classes.index(altered(job, name=""))]
        (own,) = kept.jobs({kept.moments[0]: period - kept.period_us})
        gpus = _elsewhere(instance, own.gpus, used)
        if gpus is None:
            return None
        jobs.append(replace(own, name=job.name, gpus=gpus))
    bound = max(bound for _, bound in results)
    paperwork = replace(
        results[0][0].plan, instance=instance.name, instance_sha256=instance_sha256(instance), status="feasible"
    )
    return Alone(replace(paperwork.with_jobs(tuple(jobs)).with_period(period), objective=period, bound=bound), bound)


def _on_one_server(instance: Instance) -> Instance:
    """Return the instance of a job on the first server that has GPUs enough, or else as it is."""
    job, cluster = instance.jobs[0], instance.cluster
    server = next((each for each in cluster.servers if each.gpus >= job.workers), None)
    if server is None:
        return instance
    others = {other.name for other in cluster.servers if other is not server}
    return altered(instance, cluster=cluster.without({link.name for link in cluster.links}, others))


def _plan(instance: Instance, options: Options) -> Plan | None:
    return solve(instance, "auto", replace(options, listed=True)).plan


def _elsewhere(instance: Instance, gpus: tuple[str, ...], used: Counter[int]) -> tuple[str, ...] | None:
    """Return as many unused GPUs of a server like the one that a job is on alone; None where there are too few."""
    names = {gpu.rpartition("/")[0] for gpu in gpus}
    servers = instance.cluster.servers
    like = next(altered(each, name="") for each in servers if each.name in names)
    for number, server in enumerate(servers):
        if len(names) == 1 and altered(server, name="") == like and server.gpus - used[number] >= len(gpus):
            begin = used[number]
            used[number] += len(gpus)
            return tuple(f"{server.name}/{begin + k}" for k in range(len(gpus)))
    return None
