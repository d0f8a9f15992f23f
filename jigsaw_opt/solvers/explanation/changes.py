"""What alone would make a job faster: one thing is changed, and the plan is timed again in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from jigsaw_opt.problem.cluster import Routes
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import contributors, staircase
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import JobPlan, Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.activities.flat import FlatActivities
from jigsaw_opt.solvers.explanation.breakdown import Explainer
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder, timetable_in


@dataclass(frozen=True, slots=True)
class JobChange:
    """Effect of one change on a job.

    `end_us`: end of the job then, or on the cyclic horizon the period, in microseconds. `gain_us`: by how much that is
    less than in the plan; below 0 where it is more.
    """

    change: str
    end_us: int
    gain_us: int


def changes(instance: Instance, plan: Plan, name: str) -> list[JobChange]:
    """Return what each change alone does to a job; all jobs keep their GPUs, and GPUs and links their order."""
    order = KeptOrder.of(instance, plan)
    job = next(at for at, each in enumerate(order.jobs) if each.name == name)
    now = _value(order, job, order.flat, order.starts, order.period_us)
    found = []
    for change, flat, free in (("as early as the order permits", order.flat, ()), *_relaxed(order, job)):
        timing = order.timed_as(flat, free)
        # Whatever is only taken away, the plan is still one.
        then = now if timing is None else min(now, _value(order, job, flat, timing.starts, timing.period))
        found.append(JobChange(change, then, now - then))
    for change, other in _other_levels(order, instance, plan, job):
        timing = other.timed_as(other.flat)
        if timing is not None:
            then = _value(other, job, other.flat, timing.starts, timing.period)
            found.append(JobChange(change, then, now - then))
    return found


def _value(order: KeptOrder, job: int, flat: FlatActivities, starts: Sequence[int], period: int | None) -> int:
    """Return the period, or the end of a job."""
    own = range(order.begins[job], order.begins[job + 1])
    return max(starts[a] + flat.duration_us[a] for a in own) if period is None else period


def _relaxed(order: KeptOrder, job: int) -> Iterator[tuple[str, FlatActivities, Sequence[int]]]:
    """Yield changes that only take away what is in the way, with the jobs that no others wait for then."""
    gpus, cluster, flat = order.operations.cluster.gpu_count, order.operations.cluster, order.flat
    yield "GPUs of its own", _apart(order, job, lambda resource: resource < gpus), ()
    own = {r for a in range(order.begins[job], order.begins[job + 1]) for r in flat.resources[a]}
    used = sorted(own.intersection(range(gpus, gpus + len(cluster.links))))
    if used:
        yield "links of its own", _apart(order, job, lambda resource: resource >= gpus), ()
        narrow = _narrow(order, job, used)
        if len(used) > 1:
            name = cluster.links[narrow - gpus].name
            yield f"a second link beside {name}, for it alone", _apart(order, job, lambda other: other == narrow), ()
            yield f"twice the bandwidth of link {name}", _faster(order, [narrow]), ()
        yield "twice the bandwidth of its links", _faster(order, used), ()
    others = [other for other in range(len(order.jobs)) if other != job]
    if others:
        yield "alone in the cluster", order.patched(others, (), order.operations.routes), others


def _apart(order: KeptOrder, job: int, chosen: Callable[[int], bool]) -> FlatActivities:
    """Return the activities with a copy, for one job alone, of each of its GPUs and links that are chosen."""
    flat, resources, opens = order.flat, list(order.flat.resources), list(order.flat.opens)
    for a in range(order.begins[job], order.begins[job + 1]):
        resources[a] = tuple(-1 - resource if chosen(resource) else resource for resource in resources[a])
        opens[a] = [hold for hold in opens[a] if not chosen(hold[0])]
    gpus, residents = order.operations.cluster.gpu_count, list(flat.residents)
    if residents:
        residents[job] = [own for own in residents[job] if own[0] >= gpus or not chosen(own[0])]
    return flat._replace(resources=resources, opens=opens, residents=residents)


def _narrow(order: KeptOrder, job: int, used: Sequence[int]) -> int:
    """Return the link that a job waits for most; of those that it waits for as long, the slowest."""
    cluster = order.operations.cluster
    waits: Counter[str] = Counter()
    for wait in Explainer(order).of(job).waits:
        waits[wait.on] += wait.us if wait.kind == "link" else 0
    links = {resource: cluster.links[resource - cluster.gpu_count] for resource in used}
    return max(used, key=lambda resource: (waits[links[resource].name], -links[resource].bandwidth, -resource))


def _faster(order: KeptOrder, chosen: Sequence[int]) -> FlatActivities:
    """Return the activities with twice the bandwidth of some links."""
    cluster, flat = order.operations.cluster, order.flat
    links = list(cluster.links)
    for at in (resource - cluster.gpu_count for resource in chosen):
        links[at] = altered(links[at], bandwidth=2 * links[at].bandwidth)
    users = sorted({flat.job[a] for a, used in enumerate(flat.resources) if not set(chosen).isdisjoint(used)})
    return order.patched((), users, Routes(altered(cluster, links=tuple(links))))


def _other_levels(order: KeptOrder, instance: Instance, plan: Plan, job: int) -> Iterator[tuple[str, KeptOrder]]:
    """Yield plans with other levels of a data-parallel job, where its rule and the memory of its GPUs allow them."""
    if job >= len(order.operations.jobs) or order.operations.jobs[job].rule.multiset is not None:
        return
    graph = order.operations.jobs[job]
    steps = staircase(graph.levels, graph.slots)
    turns = [tuple(steps[(slot + i) % graph.slots] for slot in range(graph.slots)) for i in range(graph.iterations)]
    full = [(graph.levels,) * graph.slots] * graph.iterations
    own = next(each for each in timetable_in(plan).jobs if each.name == graph.name)
    for change, levels in (("full depth", full), ("staircase, in turn", turns)):
        if tuple(levels) == own.levels or not _allowed(graph, levels):
            continue
        changed = _with_levels(own, levels)
        jobs = tuple(changed if each is own else each for each in plan.jobs)
        other = KeptOrder.of(instance, plan.with_jobs(jobs))
        if other.keeps_memory:
            yield change, other


def _with_levels(own: JobPlan, levels: Sequence[Sequence[int]]) -> JobPlan:
    iterations = []
    for iteration, row in zip(own.iterations, levels, strict=True):
        blocks = tuple(replace(block, level=level) for block, level in zip(iteration.blocks, row, strict=True))
        iterations.append(replace(iteration, blocks=blocks))
    return replace(own, iterations=tuple(iterations))


def _allowed(graph: OperationGraph, levels: Sequence[Sequence[int]]) -> bool:
    """Return whether levels keep a rule that leaves them open (specification: depth-rules)."""
    rule = graph.rule
    totals = [sum(own) for own in zip(*levels, strict=True)]
    reached = min(contributors(row, graph.levels) for row in levels)
    balanced = rule.balance is None or max(totals) - min(totals) <= rule.balance
    worth = rule.progress is None or rule.progress.is_kept(levels)
    return reached >= rule.min_contributors and sum(totals) >= rule.min_total and balanced and worth
