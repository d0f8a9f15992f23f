"""What comes of making a phased plan."""

from __future__ import annotations

import time

from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import Bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Conflict, Result, Status, StoppedBy

__all__ = ["phased_result"]


def phased_result(
    options: Options, started: float, bound: Bound, plan: Plan | None = None, conflicts: tuple[Conflict, ...] = ()
) -> Result:
    """Return the result of making a phased plan.

    `options, started`: options of the solve, and when it began on the monotonic clock, in seconds. `plan, conflicts`:
    the plan, checked, or why there is none, where that is proven.
    """
    seconds = time.monotonic() - started
    status = Status.INFEASIBLE if conflicts else Status.UNKNOWN if plan is None else Status(plan.status)
    if status in (Status.OPTIMAL, Status.INFEASIBLE):
        stopped_by = StoppedBy.PROOF
    elif options.cancel.is_set():
        stopped_by = StoppedBy.INTERRUPT
    elif options.time_limit is not None and seconds >= options.time_limit:
        stopped_by = StoppedBy.TIME
    else:
        stopped_by = StoppedBy.COMPLETED
    return Result(
        status=status,
        stopped_by=stopped_by,
        objective=None if plan is None else plan.objective,
        bound=bound.value,
        proof=bound.proof,
        plan=plan,
        conflicts=conflicts,
        solver="phased",
        seconds=seconds,
        seed=options.seed,
        threads=options.threads,
    )
