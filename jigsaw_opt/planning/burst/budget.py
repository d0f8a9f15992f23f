"""The fastest plan whose GPU time is within a budget for the whole job."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.burst.plan import BurstPlan, layer_us, require_limit, within

__all__ = ["budget_plan"]


@dataclass(frozen=True, slots=True)
class _Way:
    """Options up to a layer: time, GPU time, the last option and the way before it."""

    time: float
    gpu_time: float
    option: int
    before: _Way | None


@dataclass(frozen=True, slots=True)
class _Rest:
    """Least times of the layers behind an option.

    `time`: the least time, whatever GPU time that takes. `frugal`: the least GPU time, and the time that goes with it.
    """

    time: float
    frugal: tuple[float, float]


def budget_plan(costs: BurstCosts, limit: float) -> BurstPlan:
    """Return the plan of least iteration time, then GPU time, that keeps the job's amplification limit.

    That is the GPU time of all layers over their time on one GPU: a layer may be above the limit where others make up
    for it. For each option of a layer all ways there are kept of which none is both faster and cheaper, as far as they
    can be completed within the budget and in less time than the best plan so far.
    """
    require_limit(limit)
    budget = limit * costs.single_gpu_us
    fronts, best = [[_Way(0.0, 0.0, 0, None)]], inf
    for layer, rests in zip(costs.layers, _rests(costs), strict=True):
        grown = [
            [way for way in _steps(layer, own, fronts) if within(way.gpu_time + rest.frugal[0], budget)]
            for own, rest in enumerate(rests)
        ]
        for ways, rest in zip(grown, rests, strict=True):
            best = min(best, *(way.time + rest.frugal[1] for way in ways), inf)
        fronts = [_front(ways, best - rest.time) for ways, rest in zip(grown, rests, strict=True)]
        if not any(fronts):
            raise InfeasibleError(f"no plan has GPU time of at most {limit} times the time on one GPU")
    return BurstPlan(costs, _choice(min((way for front in fronts for way in front), key=_order)))


def _rests(costs: BurstCosts) -> list[list[_Rest]]:
    """Return for each layer and option what it and the layers behind it take."""
    found = [[_Rest(0.0, (0.0, 0.0)) for _ in costs.layers[-1].options]]
    for layer, before in pairwise(reversed(costs.layers)):
        found.append([_rest(layer, previous, found[-1]) for previous in range(len(before.options))])
    return found[::-1]


def _rest(layer: BurstLayer, previous: int, after: list[_Rest]) -> _Rest:
    """Return what `layer` and those behind it take after an option of the layer before."""
    time, frugal = inf, (inf, inf)
    for own, (option, rest) in enumerate(zip(layer.options, after, strict=True)):
        step = layer_us(layer, previous, own)
        time = min(time, step + rest.time)
        frugal = min(frugal, (step * option.gpus + rest.frugal[0], step + rest.frugal[1]))
    return _Rest(time, frugal)


def _steps(layer: BurstLayer, own: int, fronts: list[list[_Way]]) -> list[_Way]:
    """Return the labels of all ways to an option."""
    gpus, found = layer.options[own].gpus, []
    for previous, front in enumerate(fronts):
        step = layer_us(layer, previous, own)
        found += [_Way(way.time + step, way.gpu_time + step * gpus, own, way) for way in front]
    return found


def _front(ways: list[_Way], latest: float) -> list[_Way]:
    """Return the labels that no other one beats in time and GPU time, up to a time."""
    kept: list[_Way] = []
    for way in sorted(ways, key=_order):
        if way.time > latest * (1 + 1e-12):  # sums of the same times in another order differ a little
            break
        if not kept or way.gpu_time < kept[-1].gpu_time:
            kept.append(way)
    return kept


def _order(way: _Way) -> tuple[float, float]:
    return way.time, way.gpu_time


def _choice(way: _Way) -> tuple[int, ...]:
    """Return the options of a way, first to last."""
    found = []
    while way.before is not None:
        found.append(way.option)
        way = way.before
    return tuple(reversed(found))
