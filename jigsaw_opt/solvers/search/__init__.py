"""`search`: the anytime solver of every size, an adaptive large neighbourhood search over registered moves."""

from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.search.budget import Budget
from jigsaw_opt.solvers.search.context import Candidate, Context, ListSchedule
from jigsaw_opt.solvers.search.moves import Move
from jigsaw_opt.solvers.search.solver import SEARCH, Search

__all__ = ["SEARCH", "Budget", "Candidate", "Context", "ListSchedule", "Move", "Search", "SearchParams"]
