"""Constraints on the GPUs and the levels of workers (specification: placement, depth-rules, memory)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables, add_any
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.variables import tight_gpus
from jigsaw_opt.problem.critical import candidate_levels

if TYPE_CHECKING:
    import pulp

__all__ = ["DIGIT", "add_depth_rule", "add_memory", "add_placement"]

DIGIT = 10**5
"""Base in which sums of bytes are stated: small enough for an engine's tolerance to be far below one unit."""


def add_placement(model: AlgebraicModel, eligibility: GpuEligibility, it: JobVariables) -> None:
    """Give the job as many GPUs as slots, all on servers that routes join (specification: placement).

    Parameters
    ----------
    model
        The program, which receives columns and rows.
    eligibility
        The instance, its GPUs and routes.
    it
        Variables of the job; `it.here` and `it.used` are filled in.
    """
    job, j = it.job, it.number
    it.here = {g: model.binary(f"here_{j}_{g}") for g in eligibility.allowed(job)}
    model.add(model.total(it.here.values()) == job.slots, f"workers_{j}")
    it.used = {s: model.binary(f"used_{j}_{s}") for s in sorted({eligibility.server(g) for g in it.here})}
    for s, used in it.used.items():
        add_any(model, used, it.on_server(eligibility, s))
    component = eligibility.routes(job).component
    parts = sorted({component[s] for s in it.used})
    if len(parts) > 1:
        _one_part(model, eligibility, it, parts)
    for first, second in eligibility.routes(job).apart(it.used):
        model.add(it.used[first] + it.used[second] <= 1, f"apart_{j}_{first}_{second}")


def _one_part(model: AlgebraicModel, eligibility: GpuEligibility, it: JobVariables, parts: Sequence[int]) -> None:
    component = eligibility.routes(it.job).component
    chosen = {part: model.binary(f"part_{it.number}_{part}") for part in parts}
    model.add(model.total(chosen.values()) == 1, f"one_part_{it.number}")
    for part, literal in chosen.items():
        inside = [here for g, here in it.here.items() if component[eligibility.server(g)] == part]
        # All workers are in the chosen part, and none in the others.
        model.add(model.total(inside) == it.job.slots * literal, f"part_{it.number}_{part}")


def add_depth_rule(model: AlgebraicModel, it: JobVariables) -> None:
    """Give every worker one level in every iteration, by the job's depth rule (specification: depth-rules).

    Parameters
    ----------
    model
        The program, which receives columns and rows.
    it
        Variables of the job; `it.levels` is filled in.
    """
    candidates = candidate_levels(it.job)
    for i in range(it.job.iterations):
        it.levels.append({g: _level_literals(model, f"{it.number}_{i}_{g}", h, candidates) for g, h in it.here.items()})
    if it.job.rule.multiset is None:
        _free_levels(model, it)
    elif len(candidates) > 1:
        _level_multiset(model, it, candidates)


def _level_literals(
    model: AlgebraicModel, name: str, here: pulp.LpVariable, candidates: Sequence[int]
) -> dict[int, pulp.LpVariable]:
    if len(candidates) == 1:
        return {candidates[0]: here}
    literals = {d: model.binary(f"level_{name}_{d}") for d in candidates}
    model.add(model.total(literals.values()) == here, f"level_{name}")
    return literals


def _level_multiset(model: AlgebraicModel, it: JobVariables, candidates: Sequence[int]) -> None:
    multiset = it.job.rule.multiset or ()
    for i, levels in enumerate(it.levels):
        for d in candidates:
            held = model.total(literals[d] for literals in levels.values())
            model.add(held == multiset.count(d), f"multiset_{it.number}_{i}_{d}")


def _free_levels(model: AlgebraicModel, it: JobVariables) -> None:
    rule, deepest = it.job.rule, it.job.levels
    for i, levels in enumerate(it.levels):
        # Who reaches the last bucket reaches every bucket, so its coverage is the least.
        full = model.total(literals[deepest] for literals in levels.values())
        model.add(full >= rule.min_contributors, f"contributors_{it.number}_{i}")
    totals = {g: model.total(d * x for levels in it.levels for d, x in levels[g].items()) for g in it.here}
    most = deepest * it.job.slots * it.job.iterations
    # A share above 1 cannot be met; one level more than there are says so without a number beyond the engine's.
    model.add(model.total(totals.values()) >= min(rule.min_total, most + 1), f"total_{it.number}")
    if rule.balance is not None:
        _balance(model, it, totals, min(rule.balance, most))


def _balance(model: AlgebraicModel, it: JobVariables, totals: Mapping[int, Expression], balance: int) -> None:
    most = it.job.levels * it.job.iterations
    least = model.integer(f"least_{it.number}", 0, most)
    for g, here in it.here.items():
        # Without a worker the total is 0 and `least` at most `most`, so both rows say nothing.
        model.add(totals[g] >= least - most * (1 - here), f"balance_least_{it.number}_{g}")
        model.add(totals[g] <= least + balance, f"balance_most_{it.number}_{g}")


def add_memory(model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Fit the workers on a GPU into its memory (specification: memory).

    Parameters
    ----------
    model
        The program, which receives columns and rows.
    eligibility
        The instance, its GPUs and routes.
    jobs
        Variables of each job.
    """
    for g, inside in tight_gpus(eligibility, jobs):
        _memory_of_gpu(model, g, eligibility.memory(g), inside)


def _memory_of_gpu(model: AlgebraicModel, g: int, memory: int, inside: Sequence[JobVariables]) -> None:
    """Add one row for each worker whose activations may be the largest."""
    states = [(it.job.state_bytes, it.here[g]) for it in inside]
    for it in inside:
        sizes = it.job.activation_bytes
        for i, levels in enumerate(it.different_levels(g)):
            # A level that alone exceeds the memory is as bad as one byte too many.
            activations = [(min(sizes[d - 1], memory + 1), literal) for d, literal in levels.items()]
            _add_exact_sum(model, f"{g}_{it.number}_{i}", [*states, *activations], memory)


def _add_exact_sum(model: AlgebraicModel, name: str, terms: Sequence[tuple[int, pulp.LpVariable]], limit: int) -> None:
    """State that a sum of bytes is at most `limit`, digit by digit, so that no engine loses a byte to its tolerance."""
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
