"""Data of a retiming problem, the variables of one job, and the levels of its slots (specification: depth-rules)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.critical import candidate_levels
from jigsaw_opt.problem.compiled.operations import OperationGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.disjoint import Expression


@dataclass(frozen=True, slots=True)
class RetimingTask:
    """A placed job.

    `gpus`: GPU of each slot, by number. `tables`: duration of a block by slot and level, in microseconds. `channel`:
    links, rate and latency of its transfers. `caps`: deepest level of each slot that memory admits. `deadline`: it ends
    no later; on the cyclic horizon its span is at most this.
    """

    job: OperationGraph
    gpus: Sequence[int]
    tables: Sequence[Sequence[int]]
    channel: Channel
    caps: Sequence[int]
    deadline: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The horizon and the objective, which all jobs share.

    `period`: length of the period in microseconds, or None on the finite horizon. `weighted`: whether the weighted sum
    of all ends is minimised on the finite horizon; else the latest end is. `bound, limit`: least and largest value of
    interest of that objective; not used on the cyclic horizon.
    """

    period: int | None = None
    weighted: bool = False
    bound: int = 0
    limit: int = 0


@dataclass(slots=True)
class TaskVariables:
    """Variables of one job.

    `levels`: ``levels[i][slot][d]``: the slot is at level ``d`` in iteration ``i``; empty values where there is no
    choice. `starts, ends`: start of each block, and the barrier, by iteration. `moves, durations`: start and duration
    of each transfer, by iteration.
    """

    task: RetimingTask
    levels: list[list[dict[int, cp_model.IntVar]]] = field(default_factory=list)
    starts: list[list[cp_model.IntVar]] = field(default_factory=list)
    sizes: list[list[Expression]] = field(default_factory=list)
    moves: list[list[cp_model.IntVar]] = field(default_factory=list)
    durations: list[list[Expression]] = field(default_factory=list)
    ends: list[cp_model.IntVar] = field(default_factory=list)


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
