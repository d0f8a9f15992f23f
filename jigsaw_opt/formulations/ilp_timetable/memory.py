"""Memory of GPUs, byte by byte (specification: memory)."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.variables import tight_gpus

if TYPE_CHECKING:
    import pulp

DIGIT = 10**5
"""Base in which sums of bytes are stated: small enough for an engine's tolerance to be far below one unit."""


def add_memory(model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables]) -> None:
    """Fit the workers on a GPU into its memory (specification: memory)."""
    for g, inside in tight_gpus(eligibility, jobs):
        memory, states = eligibility.memory(g), [(own.job.state_bytes, own.assigned[g]) for own in inside]
        # One row for each worker whose activations may be the largest.
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
