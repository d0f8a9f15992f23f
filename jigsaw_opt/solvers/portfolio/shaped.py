"""`portfolio` on shaped jobs: list schedules, then searches for better orders and the exact model on one incumbent."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from jigsaw_opt.formulations.cpsat_activities import interval_count
from jigsaw_opt.problem.clock import in_context
from jigsaw_opt.problem.operations import Operations
from jigsaw_opt.solvers.activities.improving import improve
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.cpsat.search import explore, fits
from jigsaw_opt.solvers.greedy import offer_greedy
from jigsaw_opt.solvers.result import StoppedBy

__all__ = ["run_shaped"]

_FIRST_WORK = 2.0
"""Deterministic seconds for better orders where nothing limits the exact model that follows."""
_FIRST_PROOF, _SMALL = 0.2, 1000
"""Deterministic seconds of all threads for the exact model alone, where it has no more intervals than that: what is
easy is soon proven, and the search for better orders need not even be loaded."""
_SEARCH_SHARE = 0.6
"""On one thread, share of the limits for better orders where the exact model follows."""


def run_shaped(control: Control, operations: Operations) -> StoppedBy | None:
    """Solve an instance of shaped jobs; None where nothing is left to be tried.

    With two threads or more, one searches for better orders and the others prove. With one thread, the search comes
    first and the exact model has the rest; then the same seed gives the same plan within a limit of work.
    """
    work = math.inf if control.options.work_limit is None else control.options.work_limit
    offer_greedy(control, operations, control.options.seed)
    if control.reason() is not None:
        return control.reason()
    exact = fits(control, operations)
    if control.best is None:
        return explore(control, operations, control.options.threads, work)
    if control.options.threads > 1 and exact:
        if interval_count(operations) <= _SMALL:
            explore(control, operations, control.options.threads, min(work, _FIRST_PROOF))
        return control.reason() or _side_by_side(control, operations, work)
    seconds = math.inf if control.remaining is None else control.remaining
    share = _SEARCH_SHARE if exact else 1.0
    most = share * work if min(work, seconds) < math.inf else _FIRST_WORK
    spent = improve(control, operations, most, share * seconds)
    if control.reason() is not None or not exact:
        return control.reason()
    return explore(control, operations, 1, max(0.0, work - spent))


def _side_by_side(control: Control, operations: Operations, work: float) -> StoppedBy | None:
    with ThreadPoolExecutor(1, thread_name_prefix="jigsaw-proof") as pool:
        prove = partial(explore, control, operations, control.options.threads - 1, work)
        proof = pool.submit(in_context(prove))
        improve(control, operations, work)
        return control.reason() or proof.result()
