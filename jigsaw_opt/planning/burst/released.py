"""The recurrence of DeepPool's released planner, with what it leaves out."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts
from jigsaw_opt.planning.burst.plan import BurstPlan, amplification, layer_us, require_limit

__all__ = ["released_plan"]


def released_plan(costs: BurstCosts, limit: float) -> BurstPlan:
    """Plan as the released planner does (`searchLinear` of DeepPool, commit 7f823f2).

    For each option of a layer it keeps the fastest way there, and one way alone. The limit bears on the layer before,
    with the way that was kept for it. Its first option is taken in any case. A faster one replaces it if its
    amplification is below the limit, or smaller than that of the one it replaces. Thus the last layer is under no
    limit, a layer may break it, and a slower way that would keep it is lost.

    One option for each layer; some layers may be above the limit.
    """
    require_limit(limit)
    first = costs.layers[0]
    times = [layer_us(first, 0, own) for own in range(len(first.options))]
    totals, back = times, []
    for before, layer in pairwise(costs.layers):
        loads = [amplification(before, time, option.gpus) for time, option in zip(times, before.options, strict=True)]
        amplified = [1.0 if load is None else load for load in loads]
        chosen = []
        for own in range(len(layer.options)):
            reached = [total + layer_us(layer, previous, own) for previous, total in enumerate(totals)]
            chosen.append(_chosen(reached, amplified, limit))
        times = [layer_us(layer, previous, own) for own, previous in enumerate(chosen)]
        totals = [totals[previous] + time for previous, time in zip(chosen, times, strict=True)]
        back.append(chosen)
    choice = [min(range(len(totals)), key=totals.__getitem__)]
    for step in reversed(back):
        choice.append(step[choice[-1]])
    return BurstPlan(costs, tuple(reversed(choice)))


def _chosen(reached: list[float], amplified: list[float], limit: float) -> int:
    """Return the option of the layer before that the planner settles on."""
    best, time, least = 0, inf, inf
    for at, (total, own) in enumerate(zip(reached, amplified, strict=True)):
        if total < time and (own < limit or own < least):
            best, time, least = at, total, own
    return best
