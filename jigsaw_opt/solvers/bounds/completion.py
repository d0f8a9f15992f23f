"""Stronger bounds on the weighted sum of ends, from cheap to costly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.bounds.completion_loads import Load
from jigsaw_opt.solvers.bounds.completion_program import CompletionProgram, Inequality
from jigsaw_opt.solvers.bounds.facts import gather, gpu_classes
from jigsaw_opt.solvers.bounds.gpus import gpu_resources
from jigsaw_opt.solvers.bounds.links import link_resources

__all__ = ["stronger_completion_bounds"]

Stop = Callable[[], bool]

_ROUNDS = 200
"""Most times that the program is solved for the inequalities of loads."""
_ROWS = 50
"""Most inequalities that are added in a round; the ones that are broken most."""
_TOLERANCE = 1e-5
"""Inequalities that are broken by less, as a share of the latest end, are left alone."""


def stronger_completion_bounds(pieces: Pieces, stop: Stop) -> Iterator[Bound]:
    """Lower bounds on the weighted sum of ends, each better than those before.

    Parameters
    ----------
    pieces
        The instance, cut, with the objective ``weighted_completion``.
    stop
        Asked often; as soon as it holds, no more bounds follow.
    """
    classes = gpu_classes(pieces)
    facts = gather(pieces, classes)
    program = CompletionProgram([fact.job.weight for fact in facts], [fact.end for fact in facts])
    loads = [Load(resource, facts) for resource in (*gpu_resources(facts, classes), *link_resources(pieces, facts))]
    best = program.bound()
    for _ in range(_ROUNDS):
        if stop() or not _cut_off(program, loads):
            return
        if program.bound() > best:
            best = program.bound()
            yield Bound(best, f"{program.reasons()[0]}, iteration by iteration")


def _cut_off(program: CompletionProgram, loads: Sequence[Load]) -> bool:
    """Add the inequalities that the present ends break most, and solve again; says whether there were any."""
    ends = program.ends
    tolerance = _TOLERANCE * max(ends)
    found: list[Inequality] = [row for load in loads for row in load.violated(ends, tolerance)]
    found.sort(key=lambda row: -row.violation(ends))
    for row in found[:_ROWS]:
        program.add(row)
    if found:
        program.solve()
    return bool(found)
