"""What a search begins with: the heuristic's plans, jobs inserted in order, and placements made in drawn orders."""

from __future__ import annotations

from threading import Event

from jigsaw_opt.solvers.engines.compiled import warn_if_interpreted
from jigsaw_opt.solvers.greedy.heuristic import PLAIN_TRIALS
from jigsaw_opt.solvers.greedy.order_insertion import inserted_by_ratio
from jigsaw_opt.solvers.greedy.solver import offer_greedy
from jigsaw_opt.solvers.search.context import Context
from jigsaw_opt.solvers.search.moves.heuristic import Trials
from jigsaw_opt.solvers.search.moves.list_annealing import ListAnnealing, draft
from jigsaw_opt.solvers.search.moves.load_balancing import Placing

_PATIENCE = 25
"""Placements in a row without a better plan after which construction ends: moves then gain more for the same work."""
_SHARE_IN_TIME, _SHARE_WITHOUT_PLAN = 0.02, 0.2
"""Share of the limits for list schedules in which jobs follow one another for their memory, from the last better one
on: where there is a plan, and where there is none."""
_STEPS = 60
"""Most steps of annealing of the best placement: it only smooths the start, since the moves anneal at length."""


def open_search(context: Context, begun: Event) -> None:
    """Make the first plans: those of the heuristic's own orders, and what construction adds.

    A search that has a plan of another one makes none of the plans again that chance has no part in.
    """
    solve_state, told = context.solve_state, context.stream > 0 and context.incumbent is not None
    warn_if_interpreted()
    if context.operations.needs_network:
        if not told:
            offer_greedy(solve_state, context.operations, solve_state.options.seed, context.offer)
        begun.set()
        return
    context.shared(Trials).make(1 if told else PLAIN_TRIALS)
    begun.set()
    weighted = context.evaluator.weighted and not context.data.layout.held and not told
    if weighted and (inserted := inserted_by_ratio(context.data)) is not None:
        context.propose(context.candidate(inserted[1]))
    if context.operations.has_scarce_holdings and not told:
        context.shared(Trials).make_in_time(_SHARE_WITHOUT_PLAN if solve_state.best is None else _SHARE_IN_TIME)
    _construct(context)


def _construct(context: Context) -> None:
    """Place jobs in random orders, schedule them, and anneal the best of these schedules, all for a limited work."""
    placing, budget = context.shared(Placing), context.budget
    most, idle = int(context.params.opening.work / (placing.construction_work + context.evaluation_work)), 0
    for _ in range(most):
        if idle >= _PATIENCE or budget.over():
            break
        balancer, before = placing.balancer(), context.best_list
        schedule = draft(context, balancer) if placing.construct(balancer) else None
        budget.spend(context.evaluation_work)
        if schedule is not None:
            context.propose_list(schedule)
        idle = 0 if context.best_list is not before else idle + 1
    if most and context.best_list is not None and not budget.over():
        ListAnnealing(context, placing.balancer(1.0)).run(
            context.best_list, min(most, _STEPS), min(context.params.list_annealing.temperatures)
        )
