"""What becomes of a plan when one link, switch or server fails: jobs stay on their GPUs and in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import combinations

from jigsaw_opt.problem.cluster import Cluster, Routes
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.operations import Operations, cut
from jigsaw_opt.problem.plan import JobPlan, Plan, ShapedJobPlan
from jigsaw_opt.problem.shape import ShapedJob
from jigsaw_opt.problem.timetable import Gpu, Timetable
from jigsaw_opt.solvers.activities.flat import FlatActivities, flatten, network_of
from jigsaw_opt.solvers.activities.repeating import repeated
from jigsaw_opt.solvers.activities.timing import levels_of, starts_of, timetable_of

__all__ = ["FailureEffect", "failure_effects"]


@dataclass(frozen=True, slots=True)
class FailureEffect:
    """What one failure does.

    Parameters
    ----------
    kind, failed
        ``link``, ``switch`` or ``server``, and its name.
    stopped
        Jobs that cannot run where they are: on a server that failed, or no compliant route joins two of their servers.
    rerouted
        For each other job whose routes change, the links of all its routes now.
    objective
        Makespan, weighted completion or period of the jobs that run, with the order of the plan kept on every GPU and
        link; None where no job runs, or the order does not repeat within one period.
    broken
        Jobs that run and miss their deadline or pace.
    """

    kind: str
    failed: str
    stopped: tuple[str, ...]
    rerouted: dict[str, tuple[str, ...]]
    objective: int | None
    broken: tuple[str, ...]


def failure_effects(instance: Instance, plan: Plan) -> Iterator[FailureEffect]:
    """The effect of each link, switch and server alone, in the order of the cluster.

    Memory that is held over time is not looked at again.

    Parameters
    ----------
    instance, plan
        A plan that `jigsaw_opt.checking.check` accepts for the instance.
    """
    cluster = instance.cluster
    before = Routes(cluster)
    failures = [
        *(("link", link.name) for link in cluster.links),
        *(("switch", name) for name in cluster.switches),
        *(("server", server.name) for server in cluster.servers),
    ]
    for kind, failed in failures:
        links = tuple(it for it in cluster.links if failed not in ((it.name,) if kind == "link" else it.ends))
        yield _effect(instance, plan, (kind, failed), before, Routes(replace(cluster, links=links)))


def _effect(instance: Instance, plan: Plan, failure: tuple[str, str], before: Routes, after: Routes) -> FailureEffect:
    kind, failed = failure
    stopped, kept = [], []
    rerouted: dict[str, tuple[str, ...]] = {}
    for job, placed in zip(instance.jobs, plan.jobs, strict=True):
        servers = sorted({_gpu(instance.cluster, name)[0] for name in placed.gpus})
        down = kind == "server" and failed in [instance.cluster.servers[s].name for s in servers]
        old, new = (_ways(routes.under(job.route_policy), servers) for routes in (before, after))
        if down or new is None:
            stopped.append(job.name)
            continue
        kept.append((job, placed))
        if old != new:
            rerouted[job.name] = tuple(dict.fromkeys(name for way in new for name in way))
    objective: int | None = None
    broken: tuple[str, ...] = ()
    if kept:
        left = replace(instance, cluster=after.cluster, jobs=tuple(job for job, _ in kept))
        # Cut, a huge server has no GPUs but those that plans need; this plan may be on others.
        operations = replace(cut(left, shaped=True), cluster=left.cluster)
        objective, broken = _timed(operations, [placed for _, placed in kept], plan.period_us)
    return FailureEffect(kind, failed, tuple(stopped), rerouted, objective, broken)


def _gpu(cluster: Cluster, name: str) -> Gpu:
    server, _, number = name.rpartition("/")
    return next(k for k, it in enumerate(cluster.servers) if it.name == server), int(number)


def _ways(routes: Routes, servers: Sequence[int]) -> list[tuple[str, ...]] | None:
    """Names of links of the routes between any two servers; None where one is missing."""
    found = []
    for pair in combinations(servers, 2):
        route = routes.between(*pair)
        if route is None:
            return None
        found.append(tuple(routes.cluster.links[link].name for link in route))
    return found


def _timed(
    operations: Operations, placed: Sequence[JobPlan | ShapedJobPlan], period: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """Objective in the order of the plan, and the jobs that break what they promise."""
    old = Timetable(
        tuple(job for job in placed if isinstance(job, JobPlan)),
        period,
        tuple(job for job in placed if isinstance(job, ShapedJobPlan)),
    )
    gpus = [[_gpu(operations.cluster, name) for name in job.gpus] for job in old.plans]
    network = network_of(operations, gpus, levels_of(old))
    flat = flatten(network)
    order = _order(flat, starts_of(old))
    workers = [job for job in operations.instance.jobs if isinstance(job, Job)]
    jobs: list[Job | ShapedJob] = [*workers, *operations.instance.shaped]
    if period is None:
        new = timetable_of(operations, network.jobs, gpus, network.earliest(order), None, levels_of(old))
        late = [job.name for job, end in zip(jobs, new.ends) if job.deadline_us is not None and end > job.deadline_us]
        weighted = sum(job.weight * end for job, end in zip(jobs, new.ends, strict=True))
        return (max(new.ends) if operations.objective == "makespan" else weighted), tuple(late)
    found = repeated(flat, order, sum(flat.duration_us) + 1)
    if found is None:
        return None, ()
    slow = [job.name for job in jobs if job.pace_us is not None and found[0] > job.pace_us * job.iterations]
    return found[0], tuple(slow)


def _order(flat: FlatActivities, starts: Sequence[int]) -> list[int]:
    """All activities by their starts, each behind those that it waits for within one period."""
    waiting, after = [0] * len(starts), [list[int]() for _ in starts]
    for arc in flat.arcs:
        if arc.periods == 0:
            waiting[arc.after] += 1
            after[arc.before].append(arc.after)
    ready = [(start, number) for number, start in enumerate(starts) if not waiting[number]]
    heapify(ready)
    order = []
    while ready:
        number = heappop(ready)[1]
        order.append(number)
        for later in after[number]:
            waiting[later] -= 1
            if not waiting[later]:
                heappush(ready, (starts[later], later))
    return order
