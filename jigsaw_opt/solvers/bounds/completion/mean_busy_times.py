"""Mean busy times: what each GPU type and link can do of the work of all jobs, iteration by iteration."""

from __future__ import annotations

from collections.abc import Iterator

from jigsaw_opt.solvers.bounds.budget import BoundBudget
from jigsaw_opt.solvers.bounds.completion.load_cuts import LoadCuts
from jigsaw_opt.solvers.bounds.completion.shared_program import SharedProgram
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundContext, Relaxation

__all__ = ["MEAN_BUSY_TIMES"]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    shared = context.shared(SharedProgram)
    shared.cuts += [LoadCuts(resource, context.job_data) for resource in shared.resources]
    yield from shared.solved(known, budget)


MEAN_BUSY_TIMES = Relaxation("mean_busy_times", _bounds, frozenset({"weighted_completion"}), moves=True)
"""The relaxation registered as ``mean_busy_times``."""
