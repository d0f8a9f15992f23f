"""Memory of GPUs, byte by byte (specification: memory).

Jobs that do not fit onto a GPU together, or hold too much, follow one another (specification: licences).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, permutations
from math import gcd
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.ilp_timetable.variables import JobVariables
from jigsaw_opt.formulations.timetable.eligibility import GpuEligibility
from jigsaw_opt.formulations.timetable.variables import tight_gpus
from jigsaw_opt.problem.instance import HeldCapacity

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


Following = dict[tuple[int, int], "pulp.LpVariable"]
"""By two jobs: 1 if the first one has ended when the second one begins; only pairs for which that may matter."""


def add_present_jobs(
    model: AlgebraicModel, eligibility: GpuEligibility, jobs: Sequence[JobVariables], step: int
) -> Following:
    """Fit those present at a moment into the memory of every GPU, and what else they hold; return who follows whom.

    `model`: the program, which receives columns and rows. `step`: every time of a plan without needless waiting is a
    multiple of it, in microseconds.

    Notes
    -----
    What is present grows only where a job begins, so that memory is counted there.
    """
    tight, capacities = list(tight_gpus(eligibility, jobs)), eligibility.operations.instance.scarce_capacities
    held = [[job_vars for job_vars in jobs if job_vars.job.name in own.amounts] for own in capacities]
    rivals = [*(inside for _, inside in tight), *held]
    pairs = {(one.number, two.number) for inside in rivals for one, two in combinations(inside, 2)}
    present = _PresenceRows(model, [jobs[number] for number in sorted({number for pair in pairs for number in pair})])
    for j, k in sorted(pairs):
        present.add_pair(jobs[j], jobs[k], step)
    for g, inside in tight:
        present.add_memory(g, eligibility.memory(g), inside)
    for number, (own, inside) in enumerate(zip(capacities, held, strict=True)):
        present.add_held(f"held_{number}", own, inside)
    return present.following


class _PresenceRows:
    """Which jobs are present when another one begins."""

    def __init__(self, model: AlgebraicModel, jobs: Iterable[JobVariables]) -> None:
        self._model = model
        self.following: Following = {}
        self._present: dict[tuple[int, int], Expression] = {}
        self._begins = {job_vars.number: self._begin(job_vars) for job_vars in jobs}

    def _begin(self, job_vars: JobVariables) -> pulp.LpVariable:
        """Add the moment from which a job is present; no plan gains by an earlier one."""
        begin = self._model.time(f"begin_{job_vars.number}", job_vars.earliest(0), job_vars.latest(0))
        for g, start in job_vars.starts[0].items():
            self._model.add(begin <= start, f"begin_{job_vars.number}_{g}")
        return begin

    def add_pair(self, one: JobVariables, two: JobVariables, step: int) -> None:
        """Say which of two jobs begins first, and whether it has ended when the other one begins."""
        model, begins, (j, k) = self._model, self._begins, (one.number, two.number)
        # Of jobs that begin together the one with the smaller number counts as the first.
        first = model.binary(f"sooner_{j}_{k}")
        for former, latter, literal, apart in ((one, two, first, 0), (two, one, 1 - first, step)):
            a, b = former.number, latter.number
            late = max(0, former.latest(0) + apart - latter.earliest(0))
            model.add(begins[b] >= begins[a] + apart - late * (1 - literal), f"sooner_{a}_{b}")
            after = self.following[a, b] = model.binary(f"follow_{a}_{b}")
            late = max(0, former.window.deadline - latter.earliest(0))
            model.add(begins[b] >= former.ends[-1] - late * (1 - after), f"follow_{a}_{b}")
            model.add(after <= literal, f"follow_sooner_{a}_{b}")
            self._present[a, b] = literal - after

    def add_memory(self, g: int, memory: int, inside: Sequence[JobVariables]) -> None:
        """Add rows for each job that begins on a GPU and each worker whose activations may then be the largest."""
        counted = {(job_vars.number, job_vars.number): job_vars.assigned[g] for job_vars in inside}
        for job_vars, beginning in permutations(inside, 2):
            pair = job_vars.number, beginning.number
            counted[pair] = self._both(f"there_{g}_{pair[0]}_{pair[1]}", self._present[pair], job_vars.assigned[g])
        for beginning in inside:
            k = beginning.number
            states = [(job_vars.job.state_bytes, counted[job_vars.number, k]) for job_vars in inside]
            for job_vars in inside:
                j = job_vars.number
                for i, levels in enumerate(job_vars.different_levels(g)):
                    activations = []
                    for d, literal in levels.items():
                        there = literal
                        if len(levels) == 1:
                            there = counted[j, k]
                        elif j != k:
                            there = self._both(f"there_{g}_{j}_{k}_{i}_{d}", self._present[j, k], literal)
                        # A level that alone exceeds the memory is as bad as one byte too many.
                        activations.append((min(job_vars.job.activation_bytes[d - 1], memory + 1), there))
                    add_exact_sum(self._model, f"{g}_{k}_{j}_{i}", [*states, *activations], memory)

    def add_held(self, name: str, capacity: HeldCapacity, inside: Sequence[JobVariables]) -> None:
        """Add a row for each job that begins: it and those present then hold no more than there is."""
        for beginning in inside:
            k = beginning.number
            there = ((own, 1 if own is beginning else self._present[own.number, k]) for own in inside)
            held = self._model.total(capacity.amounts[own.job.name] * literal for own, literal in there)
            self._model.add(held <= capacity.units, f"{name}_{k}")

    def _both(self, name: str, one: Expression, other: pulp.LpVariable) -> pulp.LpVariable:
        """Add a column that is 1 where both are; no plan gains by it elsewhere."""
        literal = self._model.binary(name)
        self._model.add(literal >= one + other - 1, name)
        return literal
