"""Stronger bounds on the weighted sum of ends, from cheap to costly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds import CompletionBound
from jigsaw_opt.solvers.bounds.completion_groups import contests
from jigsaw_opt.solvers.bounds.completion_loads import Load, rounds
from jigsaw_opt.solvers.bounds.completion_pairs import crowded_pairs
from jigsaw_opt.solvers.bounds.completion_program import CompletionProgram
from jigsaw_opt.solvers.bounds.completion_windows import window_bounds
from jigsaw_opt.solvers.bounds.facts import gather, gpu_classes
from jigsaw_opt.solvers.bounds.gpus import gpu_resources
from jigsaw_opt.solvers.bounds.links import link_resources
from jigsaw_opt.solvers.bounds.strong.budget import Budget

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
    """One program over all resources, then the contests for links, then both with every way to share the links."""
    classes = gpu_classes(pieces)
    facts = gather(pieces, classes)
    resources = [*gpu_resources(facts, classes), *link_resources(pieces, facts)]
    program = CompletionProgram([fact.job.weight for fact in facts], [fact.end for fact in facts])
    loads = [Load(resource, facts) for resource in resources]
    yield from _rounds(program, loads, budget)
    for row in crowded_pairs(facts, budget):
        program.add(row)
    fights = contests(resources, facts)
    settled = [contest for contest in fights if contest.settled]
    loads += [contest.settle(program, budget) for contest in settled]
    yield from _rounds(program, loads, budget)
    for proof in window_bounds(program, resources, facts, budget):
        yield CompletionBound(proof.bound, f"{program.reason}, and windows of time", proof.latest_ends)
    for contest in fights:
        if not contest.settled:
            yield from contest.branch(program, loads, budget)


def _rounds(program: CompletionProgram, loads: Sequence[Load], budget: Budget) -> Iterator[CompletionBound]:
    """Bounds of a program that grows by what its ends break."""
    if budget.spent:
        return
    program.solve()
    yield _bound(program)
    for _ in rounds(program, loads, budget):
        yield _bound(program)


def _bound(program: CompletionProgram) -> CompletionBound:
    proof = program.proof()
    return CompletionBound(proof.bound, program.reason, proof.latest_ends)
