"""HiGHS on the package's mixed-integer program, from nothing: no first plan, no bound, no limit from a known plan."""

from __future__ import annotations

from math import ceil

from attempt import Attempt

from jigsaw_opt.formulations.ilp_timetable import build
from jigsaw_opt.formulations.ilp_timetable.variables import objective_step
from jigsaw_opt.formulations.timetable.windows import serial_limit, windows
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.engines.highs import HighsSearch
from jigsaw_opt.solvers.ilp import ILP


def unsupported(instance: Instance) -> str | None:
    """A cyclic horizon."""
    return "cyclic horizon" if ILP.unsupported(instance) else None


def solve(attempt: Attempt) -> None:
    """Build the program and search."""
    operations = attempt.operations
    limit = serial_limit(operations)
    model = build(operations, windows(operations, limit), 0, limit)
    column, step = model.program.column, objective_step(operations)

    def raise_bound(bound: float) -> None:
        # It holds for what the engine still searches, and is off by its floating-point error at most.
        best = limit if attempt.objective is None else attempt.objective
        attempt.bound = ceil(max(attempt.bound or 0, min(bound - 1e-9 * limit - 1e-6, best)))

    if attempt.remaining == 0.0:
        attempt.note = "the program was not built in time"
        return
    search = HighsSearch(
        model=model.program,
        step=step,
        offer=lambda values: attempt.offer(model.plan(lambda variable: values[column(variable)])),
        raise_bound=raise_bound,
        seconds=attempt.remaining,
        nodes=None,
        seed=attempt.seed,
        threads=attempt.threads,
    )
    attempt.note = search.run().value
