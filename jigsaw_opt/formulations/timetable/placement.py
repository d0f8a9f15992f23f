"""Constraints on the GPUs and levels of workers (specification: placement, depth-rules, readiness)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import gcd
from types import MappingProxyType
from typing import Any

from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.model import TimetableModel, add_any
from jigsaw_opt.formulations.timetable.variables import JobVariables
from jigsaw_opt.problem.compiled.critical import candidate_levels
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.efficiency import ProgressLimit


def add_placement(model: TimetableModel, eligibility: GpuEligibility, job_vars: JobVariables[Any, Any]) -> None:
    """Give the job as many GPUs as slots, all on servers that routes join (specification: placement)."""
    job, j = job_vars.job, job_vars.number
    job_vars.assigned = {g: model.binary(f"here_{j}_{g}") for g in eligibility.allowed(job)}
    model.add(model.total(job_vars.assigned.values()) == job.slots, f"workers_{j}")
    job_vars.used = {
        s: model.binary(f"used_{j}_{s}") for s in sorted({eligibility.server(g) for g in job_vars.assigned})
    }
    for s, used in job_vars.used.items():
        add_any(model, used, job_vars.on_server(eligibility, s), f"used_{j}_{s}")
    if job_vars.on_one_server(eligibility):
        model.add_exactly_one(job_vars.used.values(), f"one_server_{j}")
    component = eligibility.routes(job).component
    parts = sorted({component[s] for s in job_vars.used})
    if len(parts) > 1:
        chosen = {part: model.binary(f"part_{j}_{part}") for part in parts}
        model.add_exactly_one(chosen.values(), f"one_part_{j}")
        for part, literal in chosen.items():
            inside = [assigned for g, assigned in job_vars.assigned.items() if component[eligibility.server(g)] == part]
            # All workers are in the chosen part, and none in the others.
            model.add(model.total(inside) == job.slots * literal, f"part_{j}_{part}")
    for first, second in eligibility.routes(job).apart(job_vars.used):
        either = [model.negation(job_vars.used[s]) for s in (first, second)]
        model.add_clause(either, f"apart_{j}_{first}_{second}")


def add_levels(model: TimetableModel, job_vars: JobVariables[Any, Any]) -> None:
    """Give every worker one level in every iteration, by the job's depth rule (specification: depth-rules)."""
    candidates, assigned, j = candidate_levels(job_vars.job), job_vars.assigned, job_vars.number
    for i in range(job_vars.job.iterations):
        job_vars.levels.append(
            {g: level_literals(model, candidates, literal, f"level_{j}_{i}_{g}") for g, literal in assigned.items()}
        )
    add_depth_rule(model, job_vars.job, job_vars.levels, assigned, number=j)


def level_literals(model: TimetableModel, levels: Sequence[int], assigned: Any, name: str = "") -> dict[int, Any]:
    """Return a literal for each level, of which exactly one holds where `assigned` does, and else none."""
    if len(levels) == 1:
        # With one level the placement literal is the level literal.
        return {levels[0]: assigned}
    literals = {d: model.binary(f"{name}_{d}") for d in levels}
    model.add(model.total(literals.values()) == assigned, name)
    return literals


def add_depth_rule(
    model: TimetableModel,
    job: OperationGraph,
    rows: Sequence[Mapping[int, Mapping[int, Any]]],
    assigned: Mapping[int, Any] = MappingProxyType({}),
    times: int = 1,
    number: int = 0,
) -> None:
    """Keep the levels of a job to its depth rule (specification: depth-rules).

    `rows`: ``rows[i][worker][d]``: the worker has level ``d`` in iteration ``i``, or in how many of those that the row
    stands for. `assigned`: literal that the worker is there, for workers that need not be. `times`: number of
    iterations that a row stands for. `number`: number of the job.
    """
    candidates, rule, deepest = candidate_levels(job), job.rule, job.levels
    if rule.multiset is not None:
        for i, row in enumerate(rows if len(candidates) > 1 else ()):
            for d in candidates:
                held = model.total(literals[d] for literals in row.values() if d in literals)
                model.add(held == times * rule.multiset.count(d), f"multiset_{number}_{i}_{d}")
        return
    for i, row in enumerate(rows):
        # Who reaches the last bucket reaches every bucket, so its coverage is the least.
        full = model.total(literals[deepest] for literals in row.values() if deepest in literals)
        model.add(full >= times * rule.min_contributors, f"contributors_{number}_{i}")
    totals = {
        worker: model.total(d * literal for row in rows for d, literal in row[worker].items()) for worker in rows[0]
    }
    longest = deepest * job.iterations
    most = longest * job.slots
    # A share above 1 cannot be met; one level more than there are says so without a number beyond the engine's.
    model.add(model.total(totals.values()) >= min(rule.min_total, most + 1), f"total_{number}")
    # Of rows that stand for several iterations only the sums are known, which keep the least total.
    if rule.progress is not None and times == 1 and rule.progress.slack(job.iterations) >= 0:
        _add_progress(model, job, rule.progress, rows, number)
    if rule.balance is not None:
        least = model.integer(f"least_{number}", 0, longest)
        for worker, total in totals.items():
            model.add_if(assigned.get(worker, 1), total, least, longest, f"balance_least_{number}_{worker}")
            # Without a worker the total is 0, so this row holds in any case; the other one needs its condition.
            model.add(total <= least + min(rule.balance, most), f"balance_most_{number}_{worker}")


def _add_progress(
    model: TimetableModel,
    job: OperationGraph,
    limit: ProgressLimit,
    rows: Sequence[Mapping[int, Mapping[int, Any]]],
    number: int,
) -> None:
    """Let iterations lose no more progress than the limit admits (specification: progress).

    A literal stands for each number of contributors of a bucket, since rounded losses need not be convex.
    """
    slack, lost = limit.slack(job.iterations), list[tuple[int, Any]]()
    for (i, row), bucket in product(enumerate(rows), range(2, job.levels + 1)):
        losses = [*enumerate(limit.losses(bucket))][job.rule.min_contributors :]
        if losses[0][1] == 0:
            continue
        # A number of contributors that alone loses too much is none.
        admitted = {count: loss for count, loss in losses if loss <= slack}
        literals = {count: model.binary(f"progress_{number}_{i}_{bucket}_{count}") for count in admitted}
        model.add_exactly_one(literals.values(), f"progress_{number}_{i}_{bucket}")
        reached = model.total(x for own in row.values() for d, x in own.items() if d >= bucket)
        counted = model.total(count * literal for count, literal in literals.items())
        model.add(reached == counted, f"contributing_{number}_{i}_{bucket}")
        lost += [(admitted[count], literal) for count, literal in literals.items()]
    unit = gcd(*(loss for loss, _ in lost)) or 1
    if lost:
        model.add(model.total(loss // unit * literal for loss, literal in lost) <= slack // unit, f"progress_{number}")


def add_bucket_ready(
    model: TimetableModel,
    limit: Any,
    start: Any,
    ready: int,
    bucket: int,
    literals: Mapping[int, Any],
    assigned: Any = 1,
    late: int = 0,
    name: str = "",
) -> None:
    """Let a transfer start when its bucket is ready at a worker, if the worker's level reaches it.

    `limit`: the transfer starts no earlier. `start`: start of the block. `ready`: what passes until the bucket is
    ready. `literals`: those of its levels. `assigned`: whether the worker is there. `late`: the block starts at most
    so much behind `limit` where its level does not reach the bucket.
    """
    # Every possible level reaches the bucket, so one row serves all of them.
    if bucket <= min(literals):
        model.add(limit >= start + ready * assigned, name)
        return
    deep, shallow = ([x for d, x in literals.items() if (d >= bucket) == reaches] for reaches in (True, False))
    model.add_ready(limit, start, ready, deep, shallow, late, name)
