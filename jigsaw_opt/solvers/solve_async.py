"""`solve` in an event loop: it runs beside the loop, and ends where nobody waits for it any more."""

from __future__ import annotations

import asyncio
from typing import Unpack

from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import GivenOptions, Options, options_of
from jigsaw_opt.solvers.registry import Solver
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.result import Report, Result
from jigsaw_opt.solvers.solve import solve

__all__ = ["solve_async"]


async def solve_async(
    instance: Instance,
    method: str | Solver = "auto",
    options: Options | None = None,
    *,
    start: Plan | None = None,
    fix: Fix | None = None,
    on_event: Report | None = None,
    **option: Unpack[GivenOptions],
) -> Result:
    """Solve in a thread of its own, as `solve` does.

    Where the task is cancelled, as by `asyncio.wait_for`, the flag `Options.cancel` is set: the solve ends at its next
    look at it, and its result is dropped.

    Parameters
    ----------
    instance, method, options, start, fix, on_event, **option
        As of `solve`; `on_event` is called in that thread.

    Raises
    ------
    JigsawError
        As of `solve`.
    """
    asked = options_of(options, option)
    begun = asyncio.to_thread(solve, instance, method, asked, start=start, fix=fix, on_event=on_event)
    running = asyncio.ensure_future(begun)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        asked.cancel.set()
        running.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at, or Python complains
        raise
