"""Decide whether the workers of all jobs find a place, by a CP-SAT model without time.

Any placement and levels that obey placement, depth rules and memory extend to a plan, in either horizon: run all
operations one after the other, job after job. On the cyclic horizon all jobs are in memory at once, on the finite one
each needs room only while it is present. One at a time, blocks keep a power cap that each keeps alone. So an instance
without guarantees has a plan exactly where this model has a solution. Iterations are not expanded. A job with a fixed
multiset of levels may keep one iteration's levels in all of them, for memory asks only for each worker's largest; a
job under ``free`` keeps its largest levels as well, unless `balance` forbids it, and then the totals of its workers
are variables. With a limit of progress beside `balance`, the model is a relaxation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_model import CpSatRows, add_gpu_memory, new_model
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.placement import add_depth_rule, add_placement, level_literals
from jigsaw_opt.formulations.timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.windows import Window, serial_end
from jigsaw_opt.problem.compiled.critical import candidate_levels
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.costs import ceil_div, deepest_level, needed_bytes
from jigsaw_opt.problem.depth import LevelRule

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    PlacementVariables = JobVariables["cp_model.IntVar", "cp_model.LinearExprT"]
    Literals = Mapping[int, Mapping[int, cp_model.IntVar]]
    """Literal that a worker sits on a GPU with a largest level, by GPU and level."""


def literal_count(operations: Operations) -> int:
    """Return an upper limit of the number of literals of the model, a measure of its size."""
    return operations.cluster.gpu_count * sum(len(candidate_levels(job)) for job in operations.jobs)


def build(operations: Operations) -> cp_model.CpModel:
    """Build a model whose solutions are the placements of all jobs with the largest level of each worker."""
    model, eligibility = new_model(), GpuEligibility(operations)
    placed = [_add_job(model, eligibility, number) for number in range(len(operations.jobs))]
    # On the finite horizon one job after the other: a worker alone has room at every level that it may choose here.
    for gpu in range(len(eligibility.gpus)) if operations.horizon == "cyclic" else ():
        inside = [(job, own[gpu]) for job, own in zip(operations.jobs, placed, strict=True) if gpu in own]
        _add_memory(model, gpu, eligibility.memory(gpu), inside)
    return model


def _add_job(model: cp_model.CpModel, eligibility: GpuEligibility, number: int) -> Literals:
    """Add a GPU of its own and a largest level for every worker (specification: placement, depth-rules, power)."""
    job, rows = eligibility.operations.jobs[number], CpSatRows(model)
    window = Window(0, 0, serial_end(eligibility.operations))
    job_vars: PlacementVariables = JobVariables(number, job, window)
    add_placement(rows, eligibility, job_vars)
    literals = {}
    for gpu, assigned in job_vars.assigned.items():
        admitted = deepest_level(job, eligibility.memory(gpu))
        literals[gpu] = level_literals(rows, [d for d in candidate_levels(job) if d <= admitted], assigned)
    # The largest levels of all iterations stand for those of one: whatever is asked for on average, they keep.
    add_depth_rule(rows, replace(job, iterations=1, rule=_of_one(job)), [literals], job_vars.assigned)
    if job.rule.balance is not None:
        _add_balance(model, job, job.rule.balance, literals, job_vars.assigned)
    return literals


def _of_one(job: OperationGraph) -> LevelRule:
    """Return the rule of a job with one iteration that is the mean of all, without its balance."""
    n, limit = job.iterations, job.rule.progress
    progress = None if limit is None else replace(limit, least=ceil_div(limit.least, n))
    return replace(job.rule, min_total=ceil_div(job.rule.min_total, n), balance=None, progress=progress)


def _add_balance(
    model: cp_model.CpModel,
    job: OperationGraph,
    balance: int,
    literals: Literals,
    assigned: Mapping[int, cp_model.IntVar],
) -> None:
    """Keep totals of levels within `balance` of each other, and every iteration covered.

    Coverage takes each worker some of the iterations at level D; any shares that are large enough together
    can be dealt out so that every iteration has its own `min_contributors` workers.
    """
    n, top = job.iterations, job.levels
    lowest = model.new_int_var(n, n * top, f"least total of {job.name}")
    totals, shares = [], []
    for gpu, own in literals.items():
        there, deepest = assigned[gpu], sum(level * literal for level, literal in own.items())
        total = model.new_int_var(0, n * top, f"total of {job.name} on {gpu}")
        share = model.new_int_var(0, n, f"iterations of {job.name} on {gpu} at the last level")
        # Only a worker whose largest level is the last one may be at the last level.
        model.add(share <= n * own.get(top, 0))
        # Every iteration counts level 1 at least, and each at the last level ``top - 1`` more.
        model.add(total >= n * there + (top - 1) * share)
        model.add(total <= n * deepest)
        # Without a worker here the right-hand side is at most 0, so the row says nothing.
        model.add(total >= lowest - n * top * (1 - there))
        model.add(total <= lowest + min(balance, n * top))
        totals.append(total)
        shares.append(share)
    model.add(sum(shares) >= job.rule.min_contributors * n)
    model.add(sum(totals) >= job.rule.min_total)


def _add_memory(
    model: cp_model.CpModel,
    gpu: int,
    memory: int,
    inside: Sequence[tuple[OperationGraph, Mapping[int, cp_model.IntVar]]],
) -> None:
    """Fit the workers on a GPU into its memory (specification: memory)."""
    # Where all deepest levels fit together, no choice exceeds the memory.
    if needed_bytes((job.state_bytes, job.activation_bytes[max(own) - 1]) for job, own in inside if own) > memory:
        states = (job.state_bytes * literal for job, own in inside for literal in own.values())
        activations = (sum(job.activation_bytes[d - 1] * x for d, x in own.items()) for job, own in inside)
        add_gpu_memory(model, gpu, memory, states, activations)
