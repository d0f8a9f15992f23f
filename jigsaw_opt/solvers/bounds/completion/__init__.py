"""Stronger bounds on the weighted sum of ends, from cheap to costly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.budget import Budget
from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import gpu_resources
from jigsaw_opt.solvers.bounds.combinatorial.link_transfers import link_resources
from jigsaw_opt.solvers.bounds.completion.disjunctive import disjunctive_sets
from jigsaw_opt.solvers.bounds.completion.energetic import energetic_bounds
from jigsaw_opt.solvers.bounds.completion.job_pairs import forced_sharing
from jigsaw_opt.solvers.bounds.completion.mean_busy_times import LoadCuts, cut_rounds
from jigsaw_opt.solvers.bounds.completion.program import CompletionProgram
from jigsaw_opt.solvers.bounds.job_data import gather_job_data, gpu_classes
from jigsaw_opt.solvers.bounds.relaxation import CompletionBound

__all__ = ["stronger_completion_bounds"]


def stronger_completion_bounds(
    pieces: Pieces, known: int, work: float = math.inf, stop: Callable[[], bool] = lambda: False
) -> Iterator[CompletionBound]:
    """Rising proven lower bounds on the weighted sum of ends, each better than all before.

    Parameters
    ----------
    pieces
        The instance, cut, with the objective ``weighted_completion``; none come for other objectives.
    known
        A proven lower bound, such as that of `lower_bound`; only better ones are yielded.
    work
        Limit in seconds of a usual core, counted from the size of what is computed; the same limit gives the
        same bounds on every machine.
    stop
        Asked between steps of at most about a second; once it holds, no more bounds come.
    """
    if pieces.objective != "weighted_completion":
        return
    for bound in _bounds(pieces, Budget(work, stop)):
        if bound.value > known:
            known = bound.value
            yield bound


def _bounds(pieces: Pieces, budget: Budget) -> Iterator[CompletionBound]:
    """One program over all resources, then disjunctive sets of jobs, then every way to share the links."""
    classes = gpu_classes(pieces)
    job_data = gather_job_data(pieces, classes)
    resources = [*gpu_resources(job_data, classes), *link_resources(pieces, job_data)]
    program = CompletionProgram([data.job.weight for data in job_data], [data.end for data in job_data])
    loads = [LoadCuts(resource, job_data) for resource in resources]
    yield from _cut_rounds(program, loads, budget)
    for row in forced_sharing(job_data, budget):
        program.add(row)
    sets = disjunctive_sets(resources, job_data)
    whole = [jobs for jobs in sets if jobs.whole]
    loads += [jobs.add_whole(program, budget) for jobs in whole]
    yield from _cut_rounds(program, loads, budget)
    for proof in energetic_bounds(program, resources, job_data, budget):
        yield CompletionBound(proof.bound, f"{program.reason}, and windows of time", proof.deadlines)
    for jobs in sets:
        if not jobs.whole:
            yield from jobs.branch(program, loads, budget)


def _cut_rounds(program: CompletionProgram, loads: Sequence[LoadCuts], budget: Budget) -> Iterator[CompletionBound]:
    """Bounds of a program that grows by what its ends break."""
    if budget.spent:
        return
    program.solve()
    yield _bound(program)
    for _ in cut_rounds(program, loads, budget):
        yield _bound(program)


def _bound(program: CompletionProgram) -> CompletionBound:
    proof = program.proof()
    return CompletionBound(proof.bound, program.reason, proof.deadlines)
