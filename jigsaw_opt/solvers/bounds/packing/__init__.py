"""Lower bounds that are worth some seconds of search: they refute objectives that the cheap bounds leave open.

``docs/bounds.md`` has the arguments. Every bound is checked in integers; engines only propose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from jigsaw_opt.formulations.timetable.windows import serial_limit
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.budget import Budget
from jigsaw_opt.solvers.bounds.job_data import gather_job_data, gpu_classes
from jigsaw_opt.solvers.bounds.packing.destructive import DestructiveTest, destructive_bound
from jigsaw_opt.solvers.bounds.packing.link_bins import link_tests
from jigsaw_opt.solvers.bounds.packing.placement_loads import placement_tests
from jigsaw_opt.solvers.bounds.packing.two_level_bins import two_level_tests
from jigsaw_opt.solvers.bounds.relaxation import Bound

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
    job_data = gather_job_data(pieces, classes)
    tests: tuple[DestructiveTest, ...] = (
        *link_tests(pieces, job_data, classes),
        *two_level_tests(pieces, job_data, classes),
        *placement_tests(pieces),
    )
    most = serial_limit(pieces)
    for test in tests:
        for value in destructive_bound(test, known, most, budget):
            known = value
            yield Bound(value, test.reason)
