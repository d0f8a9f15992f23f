"""Constraints on the GPUs and the levels of workers (specification: placement, depth-rules, memory)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables, add_any
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.variables import tight_gpus
from jigsaw_opt.problem.compiled.critical import candidate_levels

if TYPE_CHECKING:
    import pulp

DIGIT = 10**5
"""Base in which sums of bytes are stated: small enough for an engine's tolerance to be far below one unit."""


def add_placement(model: AlgebraicModel, eligibility: GpuEligibility, job_vars: JobVariables) -> None:
    """Give the job as many GPUs as slots, all on servers that routes join (specification: placement).

    `model`: the program, which receives columns and rows.
    """
    job, j = job_vars.job, job_vars.number
    job_vars.assigned = {g: model.binary(f"here_{j}_{g}") for g in eligibility.allowed(job)}
    model.add(model.total(job_vars.assigned.values()) == job.slots, f"workers_{j}")
    job_vars.used = {
        s: model.binary(f"used_{j}_{s}") for s in sorted({eligibility.server(g) for g in job_vars.assigned})
    }
    for s, used in job_vars.used.items():
        add_any(model, used, job_vars.on_server(eligibility, s))
    component = eligibility.routes(job).component
    parts = sorted({component[s] for s in job_vars.used})
    if len(parts) > 1:
        _one_part(model, eligibility, job_vars, parts)
    for first, second in eligibility.routes(job).apart(job_vars.used):
        model.add(job_vars.used[first] + job_vars.used[second] <= 1, f"apart_{j}_{first}_{second}")


def _one_part(model: AlgebraicModel, eligibility: GpuEligibility, job_vars: JobVariables, parts: Sequence[int]) -> None:
    component = eligibility.routes(job_vars.job).component
    chosen = {part: model.binary(f"part_{job_vars.number}_{part}") for part in parts}
    model.add(model.total(chosen.values()) == 1, f"one_part_{job_vars.number}")
    for part, literal in chosen.items():
        inside = [assigned for g, assigned in job_vars.assigned.items() if component[eligibility.server(g)] == part]
        # All workers are in the chosen part, and none in the others.
        model.add(model.total(inside) == job_vars.job.slots * literal, f"part_{job_vars.number}_{part}")


def add_depth_rule(model: AlgebraicModel, job_vars: JobVariables) -> None:
    """Give every worker one level in every iteration, by the job's depth rule (specification: depth-rules).

    `model`: the program, which receives columns and rows.
    """
    candidates = candidate_levels(job_vars.job)
    for i in range(job_vars.job.iterations):
        job_vars.levels.append(
            {
                g: _level_literals(model, f"{job_vars.number}_{i}_{g}", h, candidates)
                for g, h in job_vars.assigned.items()
            }
        )
    if job_vars.job.rule.multiset is None:
        _free_levels(model, job_vars)
    elif len(candidates) > 1:
        _level_multiset(model, job_vars, candidates)


def _level_literals(
    model: AlgebraicModel, name: str, assigned: pulp.LpVariable, candidates: Sequence[int]
) -> dict[int, pulp.LpVariable]:
    if len(candidates) == 1:
        return {candidates[0]: assigned}
    literals = {d: model.binary(f"level_{name}_{d}") for d in candidates}
    model.add(model.total(literals.values()) == assigned, f"level_{name}")
    return literals


def _level_multiset(model: AlgebraicModel, job_vars: JobVariables, candidates: Sequence[int]) -> None:
    multiset = job_vars.job.rule.multiset or ()
    for i, levels in enumerate(job_vars.levels):
        for d in candidates:
            held = model.total(literals[d] for literals in levels.values())
            model.add(held == multiset.count(d), f"multiset_{job_vars.number}_{i}_{d}")


def _free_levels(model: AlgebraicModel, job_vars: JobVariables) -> None:
    rule, deepest = job_vars.job.rule, job_vars.job.levels
    for i, levels in enumerate(job_vars.levels):
        # Who reaches the last bucket reaches every bucket, so its coverage is the least.
        full = model.total(literals[deepest] for literals in levels.values())
        model.add(full >= rule.min_contributors, f"contributors_{job_vars.number}_{i}")
    totals = {
        g: model.total(d * x for levels in job_vars.levels for d, x in levels[g].items()) for g in job_vars.assigned
    }
    most = deepest * job_vars.job.slots * job_vars.job.iterations
    # A share above 1 cannot be met; one level more than there are says so without a number beyond the engine's.
    model.add(model.total(totals.values()) >= min(rule.min_total, most + 1), f"total_{job_vars.number}")
    if rule.balance is not None:
        _balance(model, job_vars, totals, min(rule.balance, most))


def _balance(model: AlgebraicModel, job_vars: JobVariables, totals: Mapping[int, Expression], balance: int) -> None:
    most = job_vars.job.levels * job_vars.job.iterations
    least = model.integer(f"least_{job_vars.number}", 0, most)
    for g, assigned in job_vars.assigned.items():
        # Without a worker the total is 0 and `least` at most `most`, so both rows say nothing.
        model.add(totals[g] >= least - most * (1 - assigned), f"balance_least_{job_vars.number}_{g}")
        model.add(totals[g] <= least + balance, f"balance_most_{job_vars.number}_{g}")


def add_memory(model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Fit the workers on a GPU into its memory (specification: memory)."""
    for g, inside in tight_gpus(eligibility, jobs):
        _memory_of_gpu(model, g, eligibility.memory(g), inside)


def _memory_of_gpu(model: AlgebraicModel, g: int, memory: int, inside: Sequence[JobVariables]) -> None:
    """Add one row for each worker whose activations may be the largest."""
    states = [(job_vars.job.state_bytes, job_vars.assigned[g]) for job_vars in inside]
    for job_vars in inside:
        sizes = job_vars.job.activation_bytes
        for i, levels in enumerate(job_vars.different_levels(g)):
            # A level that alone exceeds the memory is as bad as one byte too many.
            activations = [(min(sizes[d - 1], memory + 1), literal) for d, literal in levels.items()]
            add_exact_sum(model, f"{g}_{job_vars.number}_{i}", [*states, *activations], memory)


def add_exact_sum(model: AlgebraicModel, name: str, terms: Sequence[tuple[int, pulp.LpVariable]], limit: int) -> None:
    """State that a sum of bytes is at most `limit`, digit by digit, so that no engine loses a byte to its tolerance.

    `model`: the program, which receives columns and rows. `name`: name of the row, unique among such rows. `terms`:
    sizes in bytes, each with a 0-1 variable.
    """
    divisor = gcd(*(size for size, _ in terms)) or 1
    sizes, limit = [min(size // divisor, limit // divisor + 1) for size, _ in terms], limit // divisor
    carry: Expression = 0
    position = 0
    while limit >= DIGIT:
        digits = model.total(size % DIGIT * x for size, (_, x) in zip(sizes, terms, strict=True)) + carry
        # What exceeds this digit of the limit is carried into the next one, so no coefficient exceeds `DIGIT`.
        carry = model.integer(f"carry_{name}_{position}", 0, len(terms) + 1)
        model.add(digits <= limit % DIGIT + DIGIT * carry, f"memory_{name}_{position}")
        sizes, limit, position = [size // DIGIT for size in sizes], limit // DIGIT, position + 1
    highest = model.total(size * x for size, (_, x) in zip(sizes, terms, strict=True))
    model.add(highest + carry <= limit, f"memory_{name}")
