"""Levels of the slots (specification: depth-rules), within what memory admits (specification: memory)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_retiming.variables import TaskVariables
from jigsaw_opt.problem.compiled.critical import candidate_levels

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["add_depth_rule"]


def add_depth_rule(model: cp_model.CpModel, job_vars: TaskVariables) -> None:
    """Give every slot one level in every iteration, by the job's depth rule (specification: depth-rules).

    `job_vars`: variables of the job; `job_vars.levels` is filled in, by iteration and slot.
    """
    task, candidates = job_vars.task, candidate_levels(job_vars.task.job)
    for _ in range(task.job.iterations):
        job_vars.levels.append([_literals(model, [d for d in candidates if d <= cap]) for cap in task.caps])
    multiset = task.job.rule.multiset
    if multiset is None:
        _add_free(model, job_vars)
    elif len(candidates) > 1:
        for row in job_vars.levels:
            for d in candidates:
                model.add(sum(literals[d] for literals in row if d in literals) == multiset.count(d))


def _literals(model: cp_model.CpModel, levels: Sequence[int]) -> dict[int, cp_model.IntVar]:
    literals = {d: model.new_bool_var("") for d in levels}
    model.add_exactly_one(literals.values())
    return literals


def _add_free(model: cp_model.CpModel, job_vars: TaskVariables) -> None:
    job = job_vars.task.job
    rule, deepest = job.rule, job.levels
    for row in job_vars.levels:
        full = sum(literals[deepest] for literals in row if deepest in literals)
        model.add(full >= rule.min_contributors)
    totals = [
        sum(d * literal for row in job_vars.levels for d, literal in row[slot].items()) for slot in range(job.slots)
    ]
    most = deepest * job.slots * job.iterations
    # A share above 1 cannot be met; one level more than there are says so without a number beyond the engine's.
    model.add(sum(totals) >= min(rule.min_total, most + 1))
    if rule.balance is not None:
        least = model.new_int_var(0, deepest * job.iterations, "")
        for total in totals:
            model.add(total >= least)
            model.add(total <= least + min(rule.balance, most))
