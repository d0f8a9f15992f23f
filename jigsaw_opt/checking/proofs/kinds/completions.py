"""Linear arguments about completion times: rows that all plans keep, with multipliers (docs/proofs.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.facts.resource_facts import DemandFacts, resource_facts
from jigsaw_opt.checking.proofs.kinds.fragments import fragments
from jigsaw_opt.checking.proofs.kinds.loads import demands
from jigsaw_opt.checking.proofs.kinds.pairs import pair
from jigsaw_opt.checking.proofs.kinds.row_sum import RowSum
from jigsaw_opt.checking.proofs.step import ProofStep

RowKind = Callable[[ProofStep, Facts], RowSum]
"""Given rows of one kind with their multipliers, return their sum."""


def completions(step: ProofStep, facts: Facts) -> int:
    """Return what rows, with their multipliers, and own completion times leave to the sum of completion times."""
    denominator, left, least = step.integer("denominator", 1), dict[str, int](), dict[str, int]()
    for inner, job in facts.jobs(step, "completions"):
        least[job.name] = inner.equal("completion", job.completion, f"the least completion time of {job.name!r}")
        left[job.name] = denominator * job.weight
    total = take_rows(step, facts, left)
    return ceil((total + sum(factor * least[name] for name, factor in left.items())) / denominator)


def take_rows(step: ProofStep, facts: Facts, left: dict[str, int]) -> Fraction:
    """Return what the rows of a step add up to, and take their factors from what is left of those of the jobs."""
    total = Fraction(0)
    for inner in step.steps("rows"):
        factors, known = row_sum(inner, facts)
        total += known
        for name, factor in factors.items():
            inner.require(name in left, f"uses job {name!r}, which has no completion time here")
            left[name] -= factor
            step.require(left[name] >= 0, f"uses more of job {name!r} than its weight", "rows")
    return total


def row_sum(step: ProofStep, facts: Facts) -> RowSum:
    """Return the sum of rows of one kind."""
    kinds: Mapping[str, RowKind] = {"load": _loads, "pair": pair, "fragments": fragments}
    found = step.named("kind", kinds, "kind of row")(step, facts)
    step.done()
    return found


def _loads(step: ProofStep, facts: Facts) -> RowSum:
    """Return the sum of rows of sets of jobs on a resource: their mean busy times are no earlier than it allows."""
    resource = resource_facts(step.step("resource"), facts)
    found = dict[str, DemandFacts]()
    for inner, job, demand in demands(step, facts, resource):
        for field in ("head", "work", "offset"):
            inner.equal(field, getattr(demand, field), f"the {field} of job {job.name!r}")
        found[job.name] = demand
    unused, factors, doubled = set(found), Counter[str](), 0
    for chain in step.steps("chains"):
        heads, work, offset, sets = list[int](), 0, 0, list[tuple[tuple[str, ...], int]]()
        for inner in chain.steps("sets"):
            names, multiplier = inner.texts("more"), inner.integer("multiplier", 1)
            chain.require(bool(names) and found.keys() >= set(names), "names a job that is not in 'jobs'", "sets")
            sets.append((names, multiplier))
            for name in names:
                heads = [min([*heads, found[name].head])]
                work, offset = work + found[name].work, offset + found[name].offset
            # In parts of one over twice the capacity.
            least = 2 * resource.capacity * heads[0] * work + work**2 + resource.capacity * offset
            doubled += multiplier * least
            inner.done()
        named = [name for names, _ in sets for name in names]
        chain.require(len(set(named)) == len(named), "names a job twice", "sets")
        chain.done()
        unused.difference_update(named)
        later = 0
        for names, multiplier in reversed(sets):
            later += multiplier
            for name in names:
                factors[name] += later * found[name].work
    step.require(not unused, f"has {', '.join(sorted(unused))}, of which no chain makes use", "jobs")
    return RowSum(factors, Fraction(doubled, 2 * resource.capacity))
