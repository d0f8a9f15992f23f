"""The fastest plan in which every layer keeps the limit, and the recurrence of DeepPool's released planner."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.burst.plan import BurstPlan, amplification, layer_us, require_limit, within

__all__ = ["exact_plan", "released_plan"]


_Label = tuple[float, float]
"""Time and GPU time up to a layer: of two, the smaller time is better, then the smaller GPU time."""
_NEVER = (inf, inf)
"""Time and GPU time of a layer that no plan within the limit reaches."""


def exact_plan(costs: BurstCosts, limit: float) -> BurstPlan:
    """Return the plan of least iteration time, then GPU time, that keeps every layer's amplification limit.

    What a layer takes, and so its amplification, follows from its option and that of the layer before. So the best plan
    is a shortest path through the options, from layer to layer, without the steps that break the limit.
    """
    require_limit(limit)
    # labels[k]: least (time, GPU time), in microseconds, of the layers so far where the last one has option k. A step
    # from option k adds the same to every path that ends there, so the least label of each option is enough.
    labels: list[_Label] = [(0.0, 0.0)]
    back: list[list[int]] = []
    for at, layer in enumerate(costs.layers):
        steps = [_best_step(layer, own, labels, limit) for own in range(len(layer.options))]
        labels = [label for label, _ in steps]
        back.append([previous for _, previous in steps])
        if min(labels) == _NEVER:
            raise InfeasibleError(f"no plan keeps the limit {limit} up to layer {at} ({layer.name})")
    choice = [min(range(len(labels)), key=labels.__getitem__)]
    for step in reversed(back[1:]):
        choice.append(step[choice[-1]])
    return BurstPlan(costs, tuple(reversed(choice)))


def _best_step(layer: BurstLayer, own: int, labels: list[_Label], limit: float) -> tuple[_Label, int]:
    """Return the best label of an option, and the option before it."""
    gpus, best = layer.options[own].gpus, (_NEVER, 0)
    for previous, (time, gpu_time) in enumerate(labels):
        step = layer_us(layer, previous, own)
        if within(amplification(layer, step, gpus), limit):
            best = min(best, ((time + step, gpu_time + step * gpus), previous))
    return best


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
