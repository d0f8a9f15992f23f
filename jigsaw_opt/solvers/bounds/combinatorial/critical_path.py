"""Critical paths: no job ends before it could on an empty cluster (least times: ``problem/compiled/critical.py``)."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.solvers.bounds.arguments import completion_argument
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.text import called


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Yield the length of the longest job, or the weighted sum over all jobs."""
    if context.operations.objective == "weighted_completion":
        yield _all_jobs(context)
    else:
        yield _longest_job(context)


def _all_jobs(context: BoundContext) -> Bound:
    terms = tuple(
        Term("weighted completion time", data.job.weight * data.completion, "weight * us", (data.job.name,))
        for data in context.job_data
    )
    value, names = sum(term.amount for term in terms), tuple(data.job.name for data in context.job_data)
    arithmetic = f"{added(term.amount for term in terms)} = {value}"
    argument = completion_argument({data.job.name: data.completion for data in context.job_data})
    return Bound(value, Proof("critical paths of all jobs", arithmetic, terms, names, argument=argument))


def _longest_job(context: BoundContext) -> Bound:
    longest = max(context.job_data, key=lambda data: data.completion)
    job, name = longest.job, longest.job.name
    # A period is at least 1.
    value = max(longest.completion, int(context.operations.horizon == "cyclic"))
    terms = (Term("release", job.release_us, jobs=(name,)), Term("span", value - job.release_us, jobs=(name,)))
    arithmetic = f"{added(term.amount for term in terms)} = {value}"
    head = {"head": job.release_us} if context.operations.horizon == "finite" else {}
    argument = {"kind": "critical path", "job": name, **head, "span": longest.completion - job.release_us}
    sentence = f"critical path of {called('job', name)}"
    return Bound(value, Proof(sentence, arithmetic, terms, (name,), argument=argument))


CRITICAL_PATH = Relaxation("critical_path", _bounds, instant=True, moves=True)
"""The relaxation registered as ``critical_path``."""
