"""Linear rows over named integers that every correct plan within a limit satisfies (docs/proofs.md: rows of a plan).

They are about data-parallel jobs that keep their GPUs: what holds of all jobs holds of some.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from jigsaw_opt.checking.proofs.facts import Facts
from jigsaw_opt.checking.proofs.job_rows import MOST_ROWS, JobRows, PlanRows, ResourceUse, Term, TooManyRowsError
from jigsaw_opt.checking.proofs.step import ProofStep
from jigsaw_opt.problem.depth import FreeDepth, FullDepth, StaircaseDepth
from jigsaw_opt.problem.instance import Instance


def plan_rows(step: ProofStep, facts: Facts, limit: int, together: bool = False) -> PlanRows:
    """Return the rows that every correct plan with an objective of at most `limit` satisfies.

    `together`: whether one iteration stands for all of its job, without times inside it.
    """
    rows, instance, finite = PlanRows(), facts.instance, facts.finite
    known = (FullDepth, StaircaseDepth, FreeDepth)
    jobs = [job for job in instance.data_parallel_jobs if job.restart_us is None and isinstance(job.depth, known)]
    # Each worker of an iteration has a row for each level and one more, so nothing is built where that is too much.
    sizes = (
        job.workers * (1 if together else job.iterations) * (len(instance.models[job.model].levels) + 1) for job in jobs
    )
    if max(sum(sizes), sum(server.gpus for server in instance.cluster.servers)) > MOST_ROWS:
        raise TooManyRowsError
    each_facts = [facts.job(step, job.name) for job in jobs]
    all_rows = [JobRows(rows, each, number, finite, limit, together) for number, each in enumerate(each_facts)]
    gpus: dict[int, list[ResourceUse]] = {}
    links: dict[int, list[ResourceUse]] = {}
    for each in all_rows:
        for (_, g), block in each.blocks.items():
            gpus.setdefault(g, []).append(block)
        for link, transfer in each.links():
            links.setdefault(link, []).append(transfer)
    rows.resources = [] if together else [*gpus.values(), *links.values()]
    if instance.objective == "weighted_completion":
        rows.at_most([(job.weight, each.ends[-1]) for job, each in zip(jobs, all_rows, strict=True)], limit)
    else:
        _loads(rows, all_rows, gpus, limit)
    orders: dict[tuple[object, ...], int] = {}
    for users in rows.resources:
        for one, other in combinations(users, 2):
            if one.job != other.job:
                (_finite_order if finite else _cyclic_order)(rows, orders, one, other, limit)
    _monotone(rows, orders)
    _alike(rows, all_rows, instance)
    if finite:
        _apart(rows, all_rows, limit)
    else:
        _memory(rows, all_rows, instance)
    for licence, units in (instance.cluster.licences or {}).items():
        holders = sum(licence in (job.licences or ()) for job in instance.jobs)
        rows.at_most([], units - (min(holders, 1) if finite else holders))
    return rows


def _loads(rows: PlanRows, jobs: Sequence[JobRows], gpus: dict[int, list[ResourceUse]], limit: int) -> None:
    """Fit the work on each GPU between the least heads and tails, and the work of all jobs into all GPUs."""
    ends = {each.number: (each.job.release_us, each.facts.shared.tail) for each in jobs}
    finite = bool(jobs) and jobs[0].finite
    total = []
    for users in gpus.values():
        own = [ends[block.job] if finite else (0, 0) for block in users]
        load = rows.variable(("load", users[0].order[2]), 0, limit - min(h for h, _ in own) - min(t for _, t in own))
        total.append(load)
        rows.equal([(-1, load), *((1, block.length) for block in users)], 0)
        for head in sorted({head for head, _ in own}):
            for tail in sorted({tail for _, tail in own}):
                here = [(1, block.length) for block, (h, t) in zip(users, own, strict=True) if h >= head and t >= tail]
                if here:
                    rows.at_most(here, limit - head - tail)
    rows.at_most([(-1, load) for load in total], -sum(each.work for each in jobs))
    for link in sorted({link for each in jobs for link in each.uses}):
        sharing = [each for each in jobs if link in each.uses]
        firsts = [each.first_ready if finite else 0 for each in sharing]
        for head in sorted(set(firsts)):
            here = [(e.least_load(link), e.uses[link]) for e, h in zip(sharing, firsts, strict=True) if h >= head]
            rows.at_most(here, limit - head)


def _finite_order(
    rows: PlanRows, orders: dict[tuple[object, ...], int], one: ResourceUse, other: ResourceUse, limit: int
) -> None:
    """Let one of two operations on a resource end before the other starts."""
    name = ("order", *one.order, *other.order)
    if name not in orders:
        orders[name] = rows.variable(name, 0, 1)
    first, both = orders[name], [(limit, one.present), (limit, other.present)]
    rows.at_most([(1, one.end), (-1, other.start), (limit, first), *both], 3 * limit)
    rows.at_most([(1, other.end), (-1, one.start), (-limit, first), *both], 2 * limit)


def _cyclic_order(
    rows: PlanRows, orders: dict[tuple[object, ...], int], one: ResourceUse, other: ResourceUse, limit: int
) -> None:
    """Let a repetition of the other operation start after the end of one, and end before one starts again."""
    name = ("order", *one.order, *other.order)
    if name not in orders:
        orders[name] = rows.variable(name, -1, 2)
    turns, both = orders[name], [(4 * limit, one.present), (4 * limit, other.present)]
    rows.at_most([(1, one.end), (-1, other.start), (-limit, turns), *both], 8 * limit)
    rows.at_most([(1, other.end), (-1, one.start), (limit, turns), *both], 9 * limit)


def _monotone(rows: PlanRows, orders: dict[tuple[object, ...], int]) -> None:
    """Let what follows an operation in its job follow all that the operation follows."""
    for name, number in orders.items():
        _, job, i, where, other, k, there = name
        sign = 1 if rows.low[number] == 0 else -1
        assert isinstance(i, int) and isinstance(k, int)
        later = orders.get(("order", job, i, where, other, k + 1, there))
        if later is not None:
            rows.at_most([(sign, number), (-sign, later)], 0)
        sooner = orders.get(("order", job, i - 1, where, other, k, there))
        if sooner is not None:
            rows.at_most([(sign, number), (-sign, sooner)], 0)


def _alike(rows: PlanRows, jobs: Sequence[JobRows], instance: Instance) -> None:
    """Order the GPUs of each server, which are alike: who is there and at which levels, as a binary number, falls."""
    first = 0
    for server in instance.cluster.servers:
        for g in range(first, first + server.gpus - 1):
            here = [each for each in jobs if g in each.on]
            digits = [(each.on[g], each.on[g + 1]) for each in here]
            for each in here:
                for i in each.iterations:
                    levels = (each.levels[i, g][:0:-1], each.levels[i, g + 1][:0:-1])
                    digits += [(one, other) for (_, one), (_, other) in zip(*levels, strict=True)]
            weight, terms = 1, list[Term]()
            for one, other in reversed(digits):
                terms += [(-weight, one), (weight, other)]
                weight *= rows.high[one] + 1
            if terms:
                rows.at_most(terms, 0)
        first += server.gpus


def _apart(rows: PlanRows, jobs: Sequence[JobRows], limit: int) -> None:
    """Let one of two jobs end before the other begins where a GPU has no memory for both (specification: memory)."""
    orders: dict[tuple[object, ...], int] = {}
    for one, other in combinations([each for each in jobs if each.facts.span], 2):
        (state, held), (other_state, other_held) = one.facts.shared.least_bytes, other.facts.shared.least_bytes
        need = state + other_state + max(held, other_held)
        for g in one.on:
            if g in other.on and need > one.cluster.servers[one.server_of[g]].gpu_memory:
                _finite_order(rows, orders, one.as_a_whole(g), other.as_a_whole(g), limit)


def _memory(rows: PlanRows, jobs: Sequence[JobRows], instance: Instance) -> None:
    """Fit states and the largest activations of all workers into each GPU (specification: memory)."""
    server_of = [s for s, server in enumerate(instance.cluster.servers) for _ in range(server.gpus)]
    for g, s in enumerate(server_of):
        memory, here = instance.cluster.servers[s].gpu_memory, [each for each in jobs if g in each.on]
        largest = rows.variable(("activations", g), 0, memory)
        rows.at_most([(1, largest), *((each.terms.state_bytes, each.on[g]) for each in here)], memory)
        for each in here:
            sizes = each.terms.activation_bytes
            for i in each.iterations:
                rows.at_most([(-each.repeats, largest), *each.by_level(i, g, sizes)], 0)
