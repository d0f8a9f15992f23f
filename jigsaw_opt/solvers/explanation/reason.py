"""Why no plan of an instance is better than a bound."""

from __future__ import annotations

from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds.driver import lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.relaxation import Bound

__all__ = ["bound_reason"]

_WORK = 1.0
"""Seconds of a usual core for relaxations that take their time."""


def bound_reason(instance: Instance, enough: int) -> Bound:
    """Return the best bound that the relaxations prove in a second, with its proof."""
    operations = compile_instance(instance)
    best = lower_bound(operations)
    if best.value < enough:
        for bound in stronger_bounds(operations, best.value, _WORK):
            best = bound
            if best.value >= enough:
                break
    return best
