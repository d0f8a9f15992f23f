"""Levels of blocks, and what follows from the one that is chosen (specification: depth-rules, duration, readiness)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from jigsaw_opt.problem.compiled.critical import candidate_levels
from jigsaw_opt.problem.compiled.operations import OperationGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat.variables import Expression


def level_literals(
    model: cp_model.CpModel, levels: Sequence[int], assigned: cp_model.IntVar
) -> dict[int, cp_model.IntVar]:
    """Return a literal for each level, of which exactly one holds where `assigned` does, and else none."""
    if len(levels) == 1:
        # With one level the placement literal is the level literal.
        return {levels[0]: assigned}
    literals = {d: model.new_bool_var("") for d in levels}
    model.add(sum(literals.values()) == assigned)
    return literals


def add_depth_rule(
    model: cp_model.CpModel,
    job: OperationGraph,
    rows: Sequence[Mapping[int, Mapping[int, cp_model.IntVar]]],
    assigned: Mapping[int, cp_model.IntVar] = MappingProxyType({}),
    times: int = 1,
) -> None:
    """Keep the levels of a job to its depth rule (specification: depth-rules).

    `rows`: ``rows[i][worker][d]``: the worker has level ``d`` in iteration ``i``, or in how many of those that the row
    stands for. `assigned`: literal that the worker is there, for workers that need not be. `times`: number of
    iterations that a row stands for.
    """
    candidates, multiset = candidate_levels(job), job.rule.multiset
    if multiset is None:
        _add_free_rule(model, job, rows, assigned, times)
    elif len(candidates) > 1:
        for row in rows:
            for d in candidates:
                model.add(sum(literals[d] for literals in row.values() if d in literals) == times * multiset.count(d))


def _add_free_rule(
    model: cp_model.CpModel,
    job: OperationGraph,
    rows: Sequence[Mapping[int, Mapping[int, cp_model.IntVar]]],
    assigned: Mapping[int, cp_model.IntVar],
    times: int,
) -> None:
    rule, deepest = job.rule, job.levels
    for row in rows:
        # Who reaches the last bucket reaches every bucket, so its coverage is the least.
        full = (literals[deepest] for literals in row.values() if deepest in literals)
        model.add(sum(full) >= times * rule.min_contributors)
    totals = {worker: sum(d * literal for row in rows for d, literal in row[worker].items()) for worker in rows[0]}
    most = deepest * job.slots * job.iterations
    # A share above 1 cannot be met; one level more than there are says so without a number beyond the engine's.
    model.add(sum(totals.values()) >= min(rule.min_total, most + 1))
    if rule.balance is not None:
        least = model.new_int_var(0, deepest * job.iterations, f"least total of {job.name}")
        for worker, total in totals.items():
            model.add(total >= least).only_enforce_if([assigned[worker]] if worker in assigned else [])
            # Without a worker the total is 0, so this row holds in any case; the other one needs its condition.
            model.add(total <= least + min(rule.balance, most))


def block_size(model: cp_model.CpModel, times: Sequence[int], literals: Mapping[int, cp_model.IntVar]) -> Expression:
    """Return the duration of a block at the level that is chosen for it, in microseconds.

    `times`: durations by level, in microseconds.
    """
    sizes = {d: times[d - 1] for d in literals}
    least, most = min(sizes.values()), max(sizes.values())
    if least == most:
        return least
    size = model.new_int_var(least, most, "")
    for d, literal in literals.items():
        model.add(size == sizes[d]).only_enforce_if(literal)
    return size


def add_bucket_ready(
    model: cp_model.CpModel,
    limit: Expression,
    start: cp_model.IntVar,
    ready: int,
    bucket: int,
    literals: Mapping[int, cp_model.IntVar],
    assigned: Expression = 1,
) -> None:
    """Let a transfer start when its bucket is ready at a worker, if the worker's level reaches it.

    `limit`: the transfer starts no earlier. `start`: start of the block. `ready`: what passes until the bucket is
    ready. `literals`: those of its levels. `assigned`: whether the worker is there.
    """
    # Every possible level reaches the bucket, so one row serves all of them.
    if bucket <= min(literals):
        model.add(limit >= start + ready * assigned)
        return
    for literal in (literal for d, literal in literals.items() if d >= bucket):
        model.add(limit >= start + ready).only_enforce_if(literal)
