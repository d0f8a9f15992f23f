"""The kinds of argument by name: each returns the lower bound that it proves, or says which step fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jigsaw_opt.checking.proofs.facts.instance_facts import Facts
from jigsaw_opt.checking.proofs.kinds.bins import bins
from jigsaw_opt.checking.proofs.kinds.cases import cases
from jigsaw_opt.checking.proofs.kinds.completions import completions
from jigsaw_opt.checking.proofs.kinds.intervals import intervals
from jigsaw_opt.checking.proofs.kinds.loads import critical_path, load, workers
from jigsaw_opt.checking.proofs.kinds.placements import held_memory, of_the_end, placed_kinds, placements
from jigsaw_opt.checking.proofs.kinds.shared_work import shared_work
from jigsaw_opt.checking.proofs.kinds.upper_bound import upper_bound
from jigsaw_opt.checking.proofs.step import ProofStep, shown
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.rules.keyed import altered

Check = Callable[[ProofStep, Facts], int]
"""Given an argument and the facts of the instance, return the least objective that it leaves to any correct plan."""


def proven(step: ProofStep, facts: Facts) -> int:
    """Return what an argument proves."""
    check = step.named("kind", kinds(facts.objective), f"kind of argument about {facts.objective}")
    value = check(step, facts)
    step.done()
    return value


def kinds(objective: Objective) -> Mapping[str, Check]:
    """Return the kinds of argument that bound an objective."""
    of_ends = {**placed_kinds(), "placements": placements, "held memory": held_memory}
    checks: dict[str, Check] = {kind: of_the_end(case) for kind, case in of_ends.items()}
    checks |= {"none": lambda step, facts: 0, "cases": cases, "some jobs": _some_jobs}
    if objective == "weighted_completion":
        return {**checks, "completions": completions, "intervals": intervals, "sum": _sum}
    return {
        **checks,
        "critical path": critical_path,
        "load": load,
        "workers": workers,
        "bins": bins,
        "shared work": shared_work,
    }


def require_no_plan(step: ProofStep, facts: Facts) -> None:
    """Fail unless an argument proves that an instance has no correct plan (docs/proofs.md: no plan)."""
    step.require(step.text("kind") == "no plan", "proves a bound, not that there is no plan", "kind")
    _, part = _part(step, facts, "makespan" if facts.finite else "period")
    most = step.required(upper_bound(part), "has a job that may move, and one without a deadline", "jobs")
    step.equal("upper_bound", most, "the upper bound of a least objective")
    value = proven(step.step("argument"), part)
    step.require(value > most, f"proves {shown(value)}, which is not more than {most}", "argument")
    step.done()


def _some_jobs(step: ProofStep, facts: Facts) -> int:
    """Return what an argument proves of the instance with some of its jobs alone."""
    _, part = _part(step, facts, facts.objective)
    return proven(step.step("argument"), part)


def _sum(step: ProofStep, facts: Facts) -> int:
    """Return the sum of what is proven of parts of the jobs, no job in two of them."""
    seen, total = set[str](), 0
    for each in step.steps("parts"):
        names, part = _part(each, facts, facts.objective)
        each.require(seen.isdisjoint(names), "names a job of another part", "jobs")
        seen |= names
        total += proven(each.step("argument"), part)
        each.done()
    return total


def _part(step: ProofStep, facts: Facts, objective: Objective) -> tuple[set[str], Facts]:
    """Return the names of some jobs, and the facts of the instance that has these jobs alone."""
    names = set(step.texts("jobs"))
    jobs = tuple(job for job in facts.instance.jobs if job.name in names)
    step.require(bool(names) and len(jobs) == len(names), "is not a list of jobs of the instance", "jobs")
    return names, facts.with_jobs(step, altered(facts.instance, jobs=jobs, objective=objective))
