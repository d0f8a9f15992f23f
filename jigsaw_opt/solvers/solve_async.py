"""`solve` in an event loop: it runs beside the loop, and ends where nobody waits for it any more."""

from __future__ import annotations

import asyncio

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options, required_options
from jigsaw_opt.solvers.result import Report, Result
from jigsaw_opt.solvers.solve import solve

__all__ = ["solve_async"]


async def solve_async(
    instance: Instance, solver: str = "auto", options: Options | None = None, report: Report | None = None
) -> Result:
    """Solve in a thread of its own, as `solve` does.

    Where the task is cancelled, as by `asyncio.wait_for`, the flag `Options.cancel` is set: the solve ends at its next
    look at it, and its result is dropped.

    Parameters
    ----------
    instance, solver, options, report
        As of `solve`; `report` is called in that thread.

    Raises
    ------
    JigsawError
        As of `solve`.
    """
    options = required_options(options)
    running = asyncio.ensure_future(asyncio.to_thread(solve, instance, solver, options, report))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        options.cancel.set()
        running.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at, or Python complains
        raise
