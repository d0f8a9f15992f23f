"""Search for arguments that there is no correct plan, which a checker can follow (docs/proofs.md: no plan)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds.cases import MOST_CHANGES
from jigsaw_opt.checking.proofs.kinds.upper_bound import upper_bound
from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.bounds import instant_bounds, stronger_bounds
from jigsaw_opt.solvers.case_search import prove_by_cases
from jigsaw_opt.solvers.infeasibility.certain import too_wide
from jigsaw_opt.solvers.result import Conflict

_QUICK_CHANGES = 50_000
"""Changes of values in a quick search for cases."""
_MOST_PARTS, _MOST_SEARCHED = 24, 6
"""Sets of jobs that are tried, and those of them that are searched."""


def quick_refutations(instance: Instance, conflicts: Sequence[Conflict]) -> Iterator[Argument]:
    """Yield arguments that may show that there is no plan, as far as they take no search."""
    parts = list(_parts(instance, conflicts))
    for part, most in parts:
        for bound in () if too_wide(part) else reversed([*instant_bounds(compile_instance(part))]):
            if bound.value > most:
                yield from _about(part, most, bound.proof.argument)
    for part, most in parts:
        yield from _about(part, most, prove_by_cases(part, most + 1, _QUICK_CHANGES))


def refutations(
    instance: Instance, conflicts: Sequence[Conflict], work: float, stop: Callable[[], bool]
) -> Iterator[Argument]:
    """Yield arguments that may show that there is no plan, the quick ones first.

    `work`: seconds of a usual core for relaxations of each set of jobs. `stop`: whether the time is over.
    """
    yield from quick_refutations(instance, conflicts)
    for part, most in islice(_parts(instance, conflicts), _MOST_SEARCHED):
        yield from _about(part, most, prove_by_cases(part, most + 1, MOST_CHANGES, stop))
        for bound in () if too_wide(part) else stronger_bounds(compile_instance(part), most, work, stop):
            yield from _about(part, most, bound.proof.argument)


def _about(part: Instance, most: int, argument: Argument | None) -> Iterator[Argument]:
    if argument is not None:
        names = [job.name for job in part.jobs]
        yield {"kind": "no plan", "jobs": names, "upper_bound": most, "argument": argument}


def _parts(instance: Instance, conflicts: Sequence[Conflict]) -> Iterator[tuple[Instance, int]]:
    """Yield instances that have some of the jobs alone, and a makespan or period that some plan of them keeps."""
    objective = "makespan" if instance.horizon == "finite" else "period"
    for names in _sets(instance, conflicts)[:_MOST_PARTS]:
        jobs = tuple(job for job in instance.jobs if job.name in names)
        part = altered(instance, jobs=jobs, objective=objective)
        most = upper_bound(Facts(part))
        if most is not None:
            yield part, most


def _sets(instance: Instance, conflicts: Sequence[Conflict]) -> list[frozenset[str]]:
    """Return sets of jobs of which one may have no plan: those of conflicts, each of them, and all up to a deadline."""
    found = [frozenset(conflict.jobs) for conflict in conflicts]
    deadlines = {job.name: job.deadline_us for job in instance.jobs if job.deadline_us is not None}
    found.append(frozenset(deadlines if instance.horizon == "finite" else (job.name for job in instance.jobs)))
    found += [frozenset([name]) for conflict in conflicts for name in conflict.jobs[:_MOST_SEARCHED]]
    for latest in sorted(set(deadlines.values()), reverse=True):
        found.append(frozenset(name for name, deadline in deadlines.items() if deadline <= latest))
    return list(dict.fromkeys(each for each in found if each))
