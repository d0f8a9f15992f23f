"""The move of the cyclic horizon that inserts jobs group by group at shorter periods."""

from __future__ import annotations

from typing import ClassVar

from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, Effort
from jigsaw_opt.solvers.search.cyclic.period_search import PeriodSearch


class GroupInsertion:
    """Inserts jobs group by group, with exchanges between groups.

    Whether jobs fit into a shorter period shows at once or not at all. So a call has a slice of the limits, which grows
    while it is cut off in vain.
    """

    name: ClassVar[str] = "group_insertion"

    def __init__(self, context: Context) -> None:
        self.periods = context.shared(PeriodSearch)
        self._slice = context.params.group_insertion.slice
        self._length = Effort(1 / self._slice)

    @classmethod
    def applies(cls, context: Context) -> bool:
        """Return whether the horizon is cyclic and has too many operations for their sequence to be annealed."""
        if not context.cyclic or context.sequenced:
            return False
        return not context.operations.instance.policed or context.shared(PeriodSearch).candidate_table.complete

    def run(self, incumbent: Candidate | None, budget: Budget) -> Candidate | None:
        """Try shorter periods.

        The plan of the shortest period found, or None.

        `incumbent`: the best plan so far; not used, since the period is that of the solve state.
        """
        with budget.slice(self._slice * self._length.length):
            found = self.periods.by_groups()
            if found is not None or budget.cut():
                self._length.spent(found is not None)
        return found
