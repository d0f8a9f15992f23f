"""The levels that every peer with fixed levels takes."""

from __future__ import annotations

from jigsaw_opt.problem import OperationGraph
from jigsaw_opt.solvers.placement.levels import multisets


def shallow_levels(job: OperationGraph) -> tuple[tuple[int, ...], ...] | None:
    """Levels by iteration, each descending, as shallow as the rule permits whoever takes which; None where none are.

    A limit on the balance depends on who takes which, so there all levels are full, which keeps every rule.
    """
    return multisets(job) if job.rule.balance is None else ((job.levels,) * job.slots,) * job.iterations
