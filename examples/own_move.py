"""A move of one's own for the search: two jobs change their priorities in the best list schedule.

Run it as it stands: ``python examples/own_move.py``. Registered under the entry-point group ``jigsaw_opt.moves``, it
takes part in every search.
"""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.instances import load
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.search import Budget, Candidate, Context, ListSchedule, Search
from jigsaw_opt.solvers.solve import solve


class ExchangePriorities:
    """Exchanges the priorities of two jobs drawn by chance, twenty times."""

    name: ClassVar[str] = "exchange_priorities"

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Where there are two jobs, and a list schedule to begin with."""
        return context.best_list is not None and len(context.operations.jobs) > 1

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Propose every list schedule that is better than the one before, and hand back the last."""
        context, begun = self.context, self.context.best_list
        best = begun
        for _ in range(20):
            if best is None or budget.spend(context.evaluation_work):
                break
            priority = list(best.priority)
            one, other = context.rng.sample(range(len(priority)), 2)
            # Factors alone may all be alike, so one of them changes as well.
            priority[one], priority[other] = priority[other], priority[one] * context.rng.uniform(0.5, 2.0)
            outcome = context.evaluator.evaluate(best.outcome.jobs, priority, best.offset_us)
            if outcome.value < best.value:
                best = ListSchedule(best.assignments, priority, best.offset_us, outcome)
                context.propose_list(best)
        return None if best is None or best is begun else context.candidate(best)


if __name__ == "__main__":
    result = solve(load("server/weighted"), Search(moves=(ExchangePriorities,)), Options(work_limit=1.0, threads=1))
    print(result.status, result.objective, result.bound)
    for move in result.moves:
        print(f"{move.name}: {move.calls} calls, {move.successes} of them better, {move.improvement} in all")
