"""Lower bounds that are worth some seconds of search: they refute objectives that the cheap bounds leave open.

``docs/bounds.md`` has the arguments. Every bound is checked in integers; engines only propose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.bounds.facts import gather, gpu_classes
from jigsaw_opt.solvers.bounds.strong.budget import Budget
from jigsaw_opt.solvers.bounds.strong.link_bins import link_questions
from jigsaw_opt.solvers.bounds.strong.nested_bins import nested_questions
from jigsaw_opt.solvers.bounds.strong.placement import placement_questions
from jigsaw_opt.solvers.bounds.strong.targets import Question, refuted

__all__ = ["stronger_bounds"]


def stronger_bounds(
    pieces: Pieces, known: int, work: float = math.inf, stop: Callable[[], bool] = lambda: False
) -> Iterator[Bound]:
    """Rising proven lower bounds on makespan or period, each better than all before; none for other objectives.

    Parameters
    ----------
    pieces
        The instance, cut. Where it has no plan, the bounds are still valid numbers and mean nothing.
    known
        A proven lower bound, such as that of `lower_bound`; only better ones are yielded.
    work
        Limit in seconds of a usual core, counted from the size of what is computed; the same limit gives the
        same bounds on every machine.
    stop
        Asked between steps of at most about a second; once it holds, no more bounds come.
    """
    if pieces.objective == "weighted_completion":
        return
    budget = Budget(work, stop)
    classes = gpu_classes(pieces)
    facts = gather(pieces, classes)
    questions: tuple[Question, ...] = (
        *link_questions(pieces, facts, classes),
        *nested_questions(pieces, facts, classes),
        *placement_questions(pieces),
    )
    most = serial_limit(pieces)
    for question in questions:
        for value in refuted(question, known, most, budget):
            known = value
            yield Bound(value, question.reason)
