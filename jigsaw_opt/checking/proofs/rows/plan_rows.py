"""Linear rows over named integers that every correct plan within a limit satisfies (docs/proofs.md: rows of a plan).

They are about jobs that keep their GPUs: what holds of all jobs holds of some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.rows.job_rows import (
    MOST_ROWS,
    JobRows,
    Name,
    PlanRows,
    ResourceUse,
    Term,
    TooManyRowsError,
)
from jigsaw_opt.checking.proofs.rows.task_rows import TaskRows, slot_spreads
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.task_graph import TaskGraphJob

_Rows = JobRows | TaskRows


def plan_rows(facts: Facts, limit: int, together: bool = False) -> PlanRows:
    """Return the rows that every correct plan with an objective of at most `limit` satisfies.

    `together`: whether one iteration stands for all of its job, without times inside it.
    """
    servers = facts.instance.cluster.servers
    if sum(server.gpus for server in servers) > MOST_ROWS:
        raise TooManyRowsError
    gpus = [(f"{server.name}/{k}", s) for s, server in enumerate(servers) for k in range(server.gpus)]
    rows = PlanRows(gpus, facts.finite, limit, together)
    jobs = _rows_of_jobs(rows, facts)
    if facts.objective == "weighted_completion":
        rows.at_most([(each.job.weight, each.ends[-1]) for each in jobs], limit)
    else:
        _loads(rows, jobs, len(facts.instance.cluster.links))
    orders = {} if together else _orders(rows, jobs)
    _monotone(rows, orders)
    _alike(rows, jobs)
    for each in () if together else jobs:
        if isinstance(each, TaskRows):
            each.add_intervals(orders)
    memories = [servers[s].gpu_memory for _, s in gpus]
    if facts.finite:
        _apart(rows, jobs, memories)
    else:
        _memory(rows, jobs, memories)
    for licence, units in (facts.instance.cluster.licences or {}).items():
        holders = sum(licence in (job.licences or ()) for job in facts.instance.jobs)
        rows.at_most([], units - (min(holders, 1) if facts.finite else holders))
    return rows


def _rows_of_jobs(rows: PlanRows, facts: Facts) -> list[_Rows]:
    """Return the rows of each job that has some, in the order of the instance."""
    instance, known, found = facts.instance, (FullDepth, StaircaseDepth, FreeDepth), list[_Rows]()
    jobs = [
        job
        for job in instance.jobs
        if isinstance(job, TaskGraphJob) or (job.restart_us is None and isinstance(job.depth, known))
    ]
    # Each worker of an iteration has a row for each level and one more, so nothing is built where that is too much.
    sizes = (
        job.workers * (1 if rows.together else job.iterations) * (len(instance.models[job.model].levels) + 1)
        for job in jobs
        if isinstance(job, Job)
    )
    if sum(sizes) > MOST_ROWS:
        raise TooManyRowsError
    for job in jobs:
        if isinstance(job, Job):
            own = facts.job_facts(job.name)
            assert own is not None, "its depth rule is known, and its workers are few enough"
            found.append(JobRows(rows, own, len(found)))
            continue
        graph = facts.task_graphs[job.name]
        spreads = slot_spreads(graph, 1 if rows.together else job.iterations)
        if spreads is not None:
            found.append(TaskRows(rows, graph, spreads, len(found)))
    return found


def _loads(rows: PlanRows, jobs: Sequence[_Rows], links: int) -> None:
    """Fit the work on each GPU between the least heads and tails, and the work of all jobs into all GPUs."""
    total, limit = list[int](), rows.limit
    for g, (name, _) in enumerate(rows.gpus):
        own = [(each.job.release_us, each.tail, each.gpu_work(g)) for each in jobs if each.gpu_work(g)]
        if not rows.finite:
            own = [(0, 0, work) for _, _, work in own]
        if not own:
            continue
        load = rows.variable(("load", name), 0, limit - min(h for h, _, _ in own) - min(t for _, t, _ in own))
        total.append(load)
        rows.equal([(-1, load), *(term for _, _, work in own for term in work)], 0)
        for head in sorted({head for head, _, _ in own}):
            for tail in sorted({tail for _, tail, _ in own}):
                here = [term for h, t, work in own if h >= head and t >= tail for term in work]
                if here:
                    rows.at_most(here, limit - head - tail)
    rows.at_most([(-1, load) for load in total], -sum(each.work for each in jobs))
    for link in range(links):
        sharing = [each for each in jobs if link in each.used_links()]
        firsts = [each.first_ready if rows.finite else 0 for each in sharing]
        for head in sorted(set(firsts)):
            here = [term for e, h in zip(sharing, firsts, strict=True) if h >= head for term in e.link_work(link)]
            rows.at_most(here, limit - head)


def _orders(rows: PlanRows, jobs: Sequence[_Rows]) -> dict[Name, int]:
    """Order the operations that share a resource, and return the variables of the orders by name."""
    gpus, links = dict[int, list[ResourceUse]](), dict[int, list[ResourceUse]]()
    for each in jobs:
        for of_kind, found in ((gpus, each.gpu_uses()), (links, each.link_uses())):
            for resource, use in found:
                of_kind.setdefault(resource, []).append(use)
    slots = [users for each in jobs if isinstance(each, TaskRows) for users in each.slot_uses()]
    rows.resources = [*gpus.values(), *links.values(), *slots]
    orders = dict[Name, int]()
    for number, users in enumerate(rows.resources):
        # A GPU has one slot of a job, whose blocks are ordered wherever it is.
        for one, other in _pairs(users, jobs if number >= len(gpus) else ()):
            _order(rows, orders, one, other, _order_values(jobs[one.job], jobs[other.job], one, other))
    return orders


def _pairs(users: Sequence[ResourceUse], within: Sequence[_Rows]) -> Iterator[tuple[ResourceUse, ResourceUse]]:
    """Yield the pairs of operations of different jobs, and those within each of some task-graph jobs."""
    by_job: dict[int, list[ResourceUse]] = {}
    for use in users:
        by_job.setdefault(use.job, []).append(use)
    for one, other in combinations(by_job.values(), 2):
        yield from product(one, other)
    for job, own in by_job.items() if within else ():
        if isinstance(within[job], TaskRows):
            yield from combinations(own, 2)


def _order_values(a: _Rows, b: _Rows, one: ResourceUse, other: ResourceUse) -> tuple[int, int]:
    """Return the least and largest value of the order of two operations."""
    if isinstance(a, TaskRows) and a is b:
        return a.order_values(one, other)
    if a.rows.finite:
        return 0, 1
    if isinstance(a, JobRows) and isinstance(b, JobRows):
        return -1, 2
    most = a.reach + b.reach
    return -most, most


def _order(
    rows: PlanRows, orders: dict[Name, int], one: ResourceUse, other: ResourceUse, values: tuple[int, int]
) -> None:
    """Let one of two operations on a resource end before the other, or a repetition of it, starts."""
    name, finite, limit = ("order", *one.order, *other.order), rows.finite, rows.limit
    if name not in orders:
        orders[name] = rows.variable(name, *values)
    turn, slack = (limit, limit) if finite else (-limit, 4 * limit)
    both = [(slack, one.present), (slack, other.present)]
    first, second = (limit, 0) if finite else (0, limit)
    rows.at_most([(1, one.end), (-1, other.start), (turn, orders[name]), *both], 2 * slack + first)
    rows.at_most([(1, other.end), (-1, one.start), (-turn, orders[name]), *both], 2 * slack + second)


def _monotone(rows: PlanRows, orders: dict[Name, int]) -> None:
    """Let what follows an operation in its job follow all that the operation follows."""
    for name, number in orders.items():
        _, job, i, where, other, k, there = name
        assert isinstance(i, int) and isinstance(k, int)
        for weaker in ((job, i, where, other, k + 1, there), (job, i - 1, where, other, k, there)):
            found = orders.get(("order", *weaker))
            if found is not None:
                rows.no_later(*((number, found) if rows.finite else (found, number)))


def _alike(rows: PlanRows, jobs: Sequence[_Rows]) -> None:
    """Order the GPUs of each server, which are alike: who is there and at which levels, as a number, falls."""
    for g, ((_, server), (_, next_server)) in enumerate(pairwise(rows.gpus)):
        if server == next_server:
            digits = [pair for each in jobs for pair in each.alike(g)]
            digits += [pair for each in jobs for pair in each.alike_levels(g)]
            weight, terms = 1, list[Term]()
            for one, other in reversed(digits):
                terms += [(-weight, one), (weight, other)]
                weight *= rows.high[one] + 1
            if terms:
                rows.at_most(terms, 0)


def _apart(rows: PlanRows, jobs: Sequence[_Rows], memories: Sequence[int]) -> None:
    """Let one of two jobs end before the other begins where a GPU has no memory for both (specification: memory)."""
    orders: dict[Name, int] = {}
    lasting = [each for each in jobs if isinstance(each, TaskRows) or each.facts.span]
    for (one, other), (g, memory) in product(combinations(lasting, 2), enumerate(memories)):
        for (a, state, held), (b, other_state, other_held) in product(one.bytes_on(g), other.bytes_on(g)):
            if state + other_state + max(held, other_held) > memory:
                _order(rows, orders, one.as_a_whole(a), other.as_a_whole(b), (0, 1))


def _memory(rows: PlanRows, jobs: Sequence[_Rows], memories: Sequence[int]) -> None:
    """Fit states and the largest activations of all workers into each GPU (specification: memory)."""
    for g, memory in enumerate(memories):
        largest = rows.variable(("activations", g), 0, memory)
        states = [(state, present) for each in jobs for present, state, _ in each.bytes_on(g)]
        rows.at_most([(1, largest), *states], memory)
        for each in jobs:
            for on, peak in each.peaks_on(g) if isinstance(each, TaskRows) else ():
                rows.at_most([(1, largest), *states, (1, peak), (max(memories), on)], memory + max(memories))
            if isinstance(each, JobRows) and g in each.on:
                sizes = each.terms.activation_bytes
                for i in each.iterations:
                    rows.at_most([(-each.repeats, largest), *each.by_level(i, g, sizes)], 0)
