"""The fastest plan in which every layer keeps the limit, or all together keep a budget."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer
from jigsaw_opt.errors import InfeasibleError
from jigsaw_opt.planning.burst.plan import BurstPlan, BurstVariant, amplification, layer_us, require_limit, within


@dataclass(frozen=True, slots=True)
class _Way:
    """Options up to a layer: time, GPU time, the last option and the way before it."""

    time: float
    gpu_time: float
    option: int
    before: _Way | None


@dataclass(frozen=True, slots=True)
class _Rest:
    """What the layers behind an option take.

    `fastest`: the least time, and the least GPU time that goes with it. `frugal`: the least GPU time, and the least
    time that goes with it.
    """

    fastest: tuple[float, float] = (inf, inf)
    frugal: tuple[float, float] = (inf, inf)


def fastest_plan(costs: BurstCosts, allowed: float, variant: BurstVariant) -> BurstPlan:
    """Return the plan of least iteration time, then GPU time, that keeps a limit of amplification.

    ``exact``: every layer keeps it. What a layer takes, and so its amplification, follows from its option and that of
    the layer before. So the best plan is a shortest path through the options, from layer to layer, without the steps
    that break the limit. ``budget``: the GPU time of all layers over their time on one GPU keeps it. A layer may be
    above the limit where others make up for it.

    For each option of a layer all ways there are kept of which none is both faster and cheaper, as far as they can be
    completed within the budget and in less time than the best plan so far; without a budget, that is the fastest one.
    """
    require_limit(allowed)
    limit, job_limit = (allowed, inf) if variant == "exact" else (inf, allowed)
    budget = job_limit * costs.single_gpu_us if job_limit < inf else inf
    fronts, best = [[_Way(0.0, 0.0, 0, None)]], inf
    for at, (layer, rests) in enumerate(zip(costs.layers, _rests(costs, limit), strict=True)):
        grown = [
            [way for way in _steps(layer, own, fronts, limit) if within(way.gpu_time + rest.frugal[0], budget)]
            for own, rest in enumerate(rests)
        ]
        for ways, rest in zip(grown, rests, strict=True):
            best = min(best, *(way.time + rest.frugal[1] for way in ways), inf)
        fronts = [
            _front(ways, best - rest.fastest[0], budget - rest.fastest[1])
            for ways, rest in zip(grown, rests, strict=True)
        ]
        if not any(fronts) and limit < inf:
            raise InfeasibleError(f"no plan keeps the limit {limit} up to layer {at} ({layer.name})")
        if not any(fronts):
            raise InfeasibleError(f"no plan has GPU time of at most {job_limit} times the time on one GPU")
    return BurstPlan(costs, _choice(min((way for front in fronts for way in front), key=_order)))


def _rests(costs: BurstCosts, limit: float) -> list[list[_Rest]]:
    """Return for each layer and option what the layers behind it take."""
    found = [[_Rest((0.0, 0.0), (0.0, 0.0)) for _ in costs.layers[-1].options]]
    for layer, before in pairwise(reversed(costs.layers)):
        found.append([_rest(layer, previous, found[-1], limit) for previous in range(len(before.options))])
    return found[::-1]


def _rest(layer: BurstLayer, previous: int, after: list[_Rest], limit: float) -> _Rest:
    """Return what `layer` and those behind it take after an option of the layer before."""
    found = _Rest()
    for own, rest in enumerate(after):
        step, gpu_time = _step(layer, previous, own, limit)
        fastest = step + rest.fastest[0], gpu_time + rest.fastest[1]
        frugal = gpu_time + rest.frugal[0], step + rest.frugal[1]
        found = _Rest(min(found.fastest, fastest), min(found.frugal, frugal))
    return found


def _step(layer: BurstLayer, previous: int, own: int, limit: float) -> tuple[float, float]:
    """Return time and GPU time of a layer with an option; infinite where it breaks the limit."""
    time, gpus = layer_us(layer, previous, own), layer.options[own].gpus
    return (time, time * gpus) if within(amplification(layer, time, gpus), limit) else (inf, inf)


def _steps(layer: BurstLayer, own: int, fronts: list[list[_Way]], limit: float) -> list[_Way]:
    """Return all ways to an option that keep the limit."""
    found = []
    for previous, front in enumerate(fronts):
        time, gpu_time = _step(layer, previous, own, limit)
        if time < inf:
            found += [_Way(way.time + time, way.gpu_time + gpu_time, own, way) for way in front]
    return found


def _front(ways: list[_Way], latest: float, room: float) -> list[_Way]:
    """Return the ways that no other one beats in time and GPU time, up to a time.

    Behind one that the fastest completion has `room` for, no slower one is of use.
    """
    kept: list[_Way] = []
    for way in sorted(ways, key=_order):
        if way.time > latest * (1 + 1e-12):  # sums of the same times in another order differ a little
            break
        if not kept or way.gpu_time < kept[-1].gpu_time:
            kept.append(way)
        if way.gpu_time <= room:
            break
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
