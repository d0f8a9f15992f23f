"""A solver of one's own: greedy from several seeds, in forty lines.

Run it as it stands: ``python examples/own_solver.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState


@dataclass(frozen=True, slots=True)
class Restarts:
    """Greedy from several seeds, until a stop rule holds."""

    name: str = "restarts"
    display_name: str = "greedy from several seeds"
    tries: int = 20

    def unavailable(self) -> str | None:
        """Need no engine."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Take every instance."""
        return None

    def run(self, solve_state: SolveState) -> Result:
        """Offer one plan a seed; the solve state keeps the best and knows when to stop."""
        operations, first = solve_state.operations, solve_state.options.seed
        for seed in range(first, first + self.tries):
            timetable: Timetable | None = greedy_timetable(operations, seed)
            if timetable is not None:
                solve_state.offer(timetable)
            reason = solve_state.reason()
            if reason is not None:
                return solve_state.result(reason)
        return solve_state.result(StoppedBy.COMPLETED)


if __name__ == "__main__":
    result = solve(load("server/plain"), Restarts(), Options(time_limit=10))
    print(result.status, result.objective, result.bound, f"{100 * (result.gap or 0):.2f} %")
