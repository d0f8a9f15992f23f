"""Decide whether the workers of all jobs find a place, by a CP-SAT model without time.

Any placement and levels that obey placement, depth rules and memory extend to a plan, in either horizon: run all
operations one after the other, job after job. On the cyclic horizon all jobs are in memory at once, on the finite one
each needs room only while it is present. One at a time, blocks keep a power cap that each keeps alone. So an instance
without guarantees has a plan exactly where this model has a solution. Iterations are not expanded. A job with a fixed
multiset of levels may keep one iteration's levels in all of them, for memory asks only for each worker's largest; a
job under ``free`` keeps its largest levels as well, unless `balance` forbids it, and then the totals of its workers
are variables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_limits import add_gpu_memory
from jigsaw_opt.formulations.cpsat_model import add_apart, new_model
from jigsaw_opt.problem.compiled.critical import candidate_levels, usable_gpus
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import deepest_level, needed_bytes

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Literals = dict[tuple[int, int], cp_model.IntVar]
    """Literal that a worker sits on a GPU with a largest level, by (GPU, level)."""


def literal_count(operations: Operations) -> int:
    """Return an upper limit of the number of literals of the model, a measure of its size."""
    return operations.cluster.gpu_count * sum(len(candidate_levels(job)) for job in operations.jobs)


def build(operations: Operations) -> cp_model.CpModel:
    """Build a model whose solutions are the placements of all jobs with the largest level of each worker."""
    model = new_model()
    server_of = operations.cluster.gpus.server_of
    placed = [_add_job(model, operations, server_of, job) for job in operations.jobs]
    # On the finite horizon one job after the other: a worker alone has room at every level that it may choose here.
    for gpu, server in enumerate(server_of) if operations.horizon == "cyclic" else ():
        _add_memory(model, operations, placed, gpu, operations.cluster.servers[server].gpu_memory)
    return model


def _add_job(
    model: cp_model.CpModel, operations: Operations, server_of: Sequence[int], job: OperationGraph
) -> Literals:
    """Add a GPU of its own and a largest level for every worker (specification: placement, depth-rules, power)."""
    literals: Literals = {}
    usable = usable_gpus(operations, job)
    for gpu, s in enumerate(server_of):
        admitted = deepest_level(job, operations.cluster.servers[s].gpu_memory) if s in usable else 0
        for level in candidate_levels(job):
            if level <= admitted:
                literals[gpu, level] = model.new_bool_var(f"{job.name} on {gpu} at {level}")
        model.add_at_most_one(literals[key] for key in literals if key[0] == gpu)
    model.add(sum(literals.values()) == job.slots)
    _add_joined(model, operations, server_of, job, literals)
    if job.rule.multiset is not None:
        for level in candidate_levels(job):
            model.add(_count(literals, level) == job.rule.multiset.count(level))
    elif job.rule.balance is None:
        model.add(_count(literals, job.levels) >= job.rule.min_contributors)
        deepest = sum(level * literal for (_, level), literal in literals.items())
        model.add(job.iterations * deepest >= job.rule.min_total)
    else:
        _add_balance(model, job, job.rule.balance, literals)
    return literals


def _count(literals: Literals, level: int) -> cp_model.LinearExprT:
    """Return the number of workers whose largest level is `level`."""
    return sum(literal for (_, d), literal in literals.items() if d == level)


def _add_joined(
    model: cp_model.CpModel, operations: Operations, server_of: Sequence[int], job: OperationGraph, literals: Literals
) -> None:
    """Put all workers on servers that paths join, any two of them (specification: route, route-policies)."""
    routes = operations.routes.under(job.route_policy)
    inside: dict[int, list[cp_model.IntVar]] = defaultdict(list)
    on_server: dict[int, list[cp_model.IntVar]] = defaultdict(list)
    for (gpu, _), literal in literals.items():
        inside[routes.component[server_of[gpu]]].append(literal)
        on_server[server_of[gpu]].append(literal)
    for first, second in routes.apart(on_server):
        add_apart(model, on_server[first], on_server[second])
    if len(inside) > 1 and job.slots > 1:
        chosen = {part: model.new_bool_var(f"{job.name} in part {part}") for part in inside}
        for part, members in inside.items():
            model.add(sum(members) == job.slots * chosen[part])


def _add_balance(model: cp_model.CpModel, job: OperationGraph, balance: int, literals: Literals) -> None:
    """Keep totals of levels within `balance` of each other, and every iteration covered.

    Coverage takes each worker some of the iterations at level D; any shares that are large enough together
    can be dealt out so that every iteration has its own `min_contributors` workers.
    """
    n, top = job.iterations, job.levels
    lowest = model.new_int_var(n, n * top, f"least total of {job.name}")
    totals, shares = [], []
    for gpu in sorted({gpu for gpu, _ in literals}):
        assigned = sum(literal for (g, _), literal in literals.items() if g == gpu)
        deepest = sum(level * literal for (g, level), literal in literals.items() if g == gpu)
        total = model.new_int_var(0, n * top, f"total of {job.name} on {gpu}")
        share = model.new_int_var(0, n, f"iterations of {job.name} on {gpu} at the last level")
        # Only a worker whose largest level is the last one may be at the last level.
        model.add(share <= n * literals.get((gpu, top), 0))
        # Every iteration counts level 1 at least, and each at the last level ``top - 1`` more.
        model.add(total >= n * assigned + (top - 1) * share)
        model.add(total <= n * deepest)
        # Without a worker here the right-hand side is at most 0, so the row says nothing.
        model.add(total >= lowest - n * top * (1 - assigned))
        model.add(total <= lowest + min(balance, n * top))
        totals.append(total)
        shares.append(share)
    model.add(sum(shares) >= job.rule.min_contributors * n)
    model.add(sum(totals) >= job.rule.min_total)


def _add_memory(model: cp_model.CpModel, operations: Operations, placed: list[Literals], gpu: int, memory: int) -> None:
    """Fit the workers on a GPU into its memory (specification: memory)."""
    inside = [
        # Where all deepest levels fit together, no choice exceeds the memory.
        (job, [(level, literals[gpu, level]) for level in candidate_levels(job) if (gpu, level) in literals])
        for job, literals in zip(operations.jobs, placed, strict=True)
    ]
    if (
        needed_bytes((job.state_bytes, job.activation_bytes[pairs[-1][0] - 1]) for job, pairs in inside if pairs)
        <= memory
    ):
        return
    states = (job.state_bytes * literal for job, pairs in inside for _, literal in pairs)
    activations = (sum(job.activation_bytes[level - 1] * literal for level, literal in pairs) for job, pairs in inside)
    add_gpu_memory(model, gpu, memory, states, activations)
