"""Constraints on the GPUs and the levels of workers (specification: placement, depth-rules, memory)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.maximum_encoding import encode_maximum
from jigsaw_opt.formulations.cpsat_timetable.variables import JobVariables, add_any
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.order_encoding import encoded_value
from jigsaw_opt.formulations.timetable.variables import tight_gpus
from jigsaw_opt.problem.critical import candidate_levels

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression

__all__ = ["add_depth_rule", "add_memory", "add_placement"]


def add_placement(model: cp_model.CpModel, eligibility: GpuEligibility, it: JobVariables) -> None:
    """Give the job as many GPUs as slots, all on servers that routes join (specification: placement).

    Parameters
    ----------
    model
        The CP-SAT model, which receives variables and constraints.
    eligibility
        The instance, its GPUs and routes.
    it
        Variables of the job; `it.here` and `it.used` are filled in.
    """
    job, name = it.job, it.job.name
    it.here = {g: model.new_bool_var(f"{name} on {g}") for g in eligibility.allowed(job)}
    model.add(sum(it.here.values()) == job.slots)
    it.used = {s: model.new_bool_var(f"{name} uses {s}") for s in sorted({eligibility.server(g) for g in it.here})}
    for s, used in it.used.items():
        add_any(model, used, it.on_server(eligibility, s))
    if it.on_one_server(eligibility):
        model.add_exactly_one(it.used.values())
    component = eligibility.routes(job).component
    parts = sorted({component[s] for s in it.used})
    if len(parts) > 1:
        _one_part(model, eligibility, it, parts)
    for first, second in eligibility.routes(job).apart(it.used):
        model.add_bool_or([~it.used[first], ~it.used[second]])


def _one_part(model: cp_model.CpModel, eligibility: GpuEligibility, it: JobVariables, parts: Sequence[int]) -> None:
    component = eligibility.routes(it.job).component
    chosen = {part: model.new_bool_var(f"{it.job.name} in part {part}") for part in parts}
    model.add_exactly_one(chosen.values())
    for part, literal in chosen.items():
        inside = [here for g, here in it.here.items() if component[eligibility.server(g)] == part]
        # All workers are in the chosen part, and none in the others.
        model.add(sum(inside) == it.job.slots * literal)


def add_depth_rule(model: cp_model.CpModel, it: JobVariables) -> None:
    """Give every worker one level in every iteration, by the job's depth rule (specification: depth-rules).

    Parameters
    ----------
    model
        The CP-SAT model, which receives variables and constraints.
    it
        Variables of the job; `it.levels` is filled in.
    """
    candidates = candidate_levels(it.job)
    for i in range(it.job.iterations):
        it.levels.append(
            {g: _level_literals(model, f"{it.job.name}.{i} on {g}", h, candidates) for g, h in it.here.items()}
        )
    if it.job.rule.multiset is None:
        _free_levels(model, it)
    elif len(candidates) > 1:
        _level_multiset(model, it, candidates)


def _level_literals(
    model: cp_model.CpModel, name: str, here: cp_model.IntVar, candidates: Sequence[int]
) -> dict[int, cp_model.IntVar]:
    if len(candidates) == 1:
        # With one candidate the placement literal is the level literal.
        return {candidates[0]: here}
    literals = {d: model.new_bool_var(f"{name} at level {d}") for d in candidates}
    model.add(sum(literals.values()) == here)
    return literals


def _level_multiset(model: cp_model.CpModel, it: JobVariables, candidates: Sequence[int]) -> None:
    multiset = it.job.rule.multiset or ()
    for levels in it.levels:
        for d in candidates:
            model.add(sum(literals[d] for literals in levels.values()) == multiset.count(d))


def _free_levels(model: cp_model.CpModel, it: JobVariables) -> None:
    rule, deepest = it.job.rule, it.job.levels
    for levels in it.levels:
        # Who reaches the last bucket reaches every bucket, so its coverage is the least.
        model.add(sum(literals[deepest] for literals in levels.values()) >= rule.min_contributors)
    totals: dict[int, Expression] = {
        g: sum(d * literal for levels in it.levels for d, literal in levels[g].items()) for g in it.here
    }
    most = deepest * it.job.slots * it.job.iterations
    # A share above 1 cannot be met; one level more than there are says so without a number beyond the engine's.
    model.add(sum(totals.values()) >= min(rule.min_total, most + 1))
    if rule.balance is not None:
        _balance(model, it, totals, min(rule.balance, most))


def _balance(model: cp_model.CpModel, it: JobVariables, totals: dict[int, Expression], balance: int) -> None:
    least = model.new_int_var(0, it.job.levels * it.job.iterations, f"least total of {it.job.name}")
    for g, here in it.here.items():
        model.add(totals[g] >= least).only_enforce_if(here)
        # Without a worker the total is 0, so this row holds in any case; the other one needs its condition.
        model.add(totals[g] <= least + balance)


def add_memory(model: cp_model.CpModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Fit the workers on a GPU into its memory (specification: memory).

    Parameters
    ----------
    model
        The CP-SAT model, which receives variables and constraints.
    eligibility
        The instance, its GPUs and routes.
    jobs
        Variables of each job.
    """
    for g, inside in tight_gpus(eligibility, jobs):
        _memory_of_gpu(model, g, eligibility.memory(g), inside)


def _memory_of_gpu(model: cp_model.CpModel, g: int, memory: int, inside: Sequence[JobVariables]) -> None:
    """Fit state and largest activations into the memory of a GPU.

    The largest activations take the order encoding of the sizes that occur; a size beyond the memory is one byte too
    many.
    """
    uses = [
        (min(it.job.activation_bytes[d - 1], memory + 1), literal)
        for it in inside
        for levels in it.different_levels(g)
        for d, literal in levels.items()
    ]
    largest = encode_maximum(model, [(0, inside[0].here[g]), *uses])
    state = sum(it.job.state_bytes * it.here[g] for it in inside)
    model.add(state + encoded_value(largest.values, largest.steps) <= memory)
