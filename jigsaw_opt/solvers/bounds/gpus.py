"""GPU time as a resource: priced by type and memory, every block at its cheapest.

For any prices, the work of all jobs at the cheapest prices fits into the priced time of all GPUs, which is the
dual of the linear program that spreads work over unlike GPUs. Every price vector gives a bound; the search
for a good one needs no proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.clock import looking
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.demand import Demand, Resource, Run
from jigsaw_opt.solvers.bounds.facts import Facts, GpuClass

__all__ = ["gpu_resources"]

_MOST_CORNERS = 3
"""Up to so many classes of GPUs, every subset of them is tried on its own."""
_STEPS = 16
"""Rounds of the search for prices."""
_FINEST = 1000
"""Integer price of one at the start of the search."""

Prices = tuple[int, ...]


def gpu_resources(facts: Sequence[Facts], classes: Sequence[GpuClass]) -> Iterator[Resource]:
    """GPU time at several prices: all alike, classes on their own, and the best prices found."""
    market = _Market([fact for fact in facts if fact.shape.blocks], classes)
    starts = [prices for prices in _corners(len(classes)) if market.load(prices)]
    if len(classes) > 1 and starts:
        starts.append(market.search(max(starts, key=market.load)))
    for prices in starts:
        demands = [market.demand(fact, prices) if fact.shape.blocks else None for fact in looking(facts)]
        yield Resource(market.capacity(prices), demands, _reason(classes, prices))


def _corners(count: int) -> Iterator[Prices]:
    """All classes alike, and some of them on their own."""
    yield (1,) * count
    if count <= _MOST_CORNERS:
        for subset in range(1, 2**count - 1):
            yield tuple(subset >> k & 1 for k in range(count))


def _reason(classes: Sequence[GpuClass], prices: Prices) -> str:
    kinds = ", ".join(dict.fromkeys(kind.gpu_type for kind, price in zip(classes, prices, strict=True) if price))
    return f"GPU work on {kinds}"


class _Tariff(NamedTuple):
    """What jobs of one shape pay at some prices.

    Parameters
    ----------
    cost
        Least price of a block, by level.
    once, moment
        Price of an iteration that no choice of levels goes below, and its moment (see `Facts.lag`).
    crowding
        What an iteration costs more because a job has at most one worker on each GPU of its cheapest class.
    runs, spare
        See `Demand`.
    """

    cost: list[int]
    once: int
    moment: int
    crowding: int
    runs: tuple[Run, ...]
    spare: Run


class _Market:
    """Work of jobs by the prices of GPU classes; shapes are worked out once."""

    def __init__(self, facts: Sequence[Facts], classes: Sequence[GpuClass]) -> None:
        self._classes = classes
        self._tariffs: dict[tuple[int, Prices], _Tariff] = {}
        self._together: dict[int, Facts] = {}
        for fact in facts:
            known = self._together.get(id(fact.shape))
            self._together[id(fact.shape)] = fact if known is None else _merged(known, fact)

    def capacity(self, prices: Prices) -> int:
        """Priced GPU time of a microsecond."""
        return sum(price * kind.gpus for price, kind in zip(prices, self._classes, strict=True))

    def load(self, prices: Prices) -> Fraction:
        """Time that about all work takes at these prices."""
        return Fraction(sum(self._work(fact, prices) for fact in self._together.values()), self.capacity(prices))

    def demand(self, fact: Facts, prices: Prices) -> Demand:
        """Demand of one job."""
        tariff = self._tariff(fact, prices)
        lag = fact.lag(tariff.once, tariff.moment)
        work, tail = self._work(fact, prices), fact.shape.tail
        return Demand(fact.job.release_us, work, tail, lag, tariff.runs, tariff.spare)

    def search(self, prices: Prices) -> Prices:
        """Prices of a larger load: one class after the other, by factors that come closer to 1."""
        best = tuple(price * _FINEST or 1 for price in prices)
        load, step = self.load(best), 2.0
        for _ in range(_STEPS):
            better = max(_neighbours(best, step), key=self.load)
            if (found := self.load(better)) > load:
                best, load = better, found
            else:
                step = step**0.5
        return best

    def _work(self, fact: Facts, prices: Prices) -> int:
        tariff = self._tariff(fact, prices)
        return critical.least_work_us(fact.job, tariff.cost) + fact.job.iterations * tariff.crowding

    def _tariff(self, fact: Facts, prices: Prices) -> _Tariff:
        key = (id(fact.shape), prices)
        if key not in self._tariffs:
            self._tariffs[key] = self._price(fact, prices)
        return self._tariffs[key]

    def _price(self, fact: Facts, prices: Prices) -> _Tariff:
        job, blocks, tails = fact.job, fact.shape.blocks, fact.shape.tails
        levels = range(1, job.levels + 1)
        length = [min(times[d - 1] for times in blocks.values() if len(times) >= d) for d in levels]
        cost = [min(prices[k] * times[d - 1] for k, times in blocks.items() if len(times) >= d) for d in levels]
        least = critical.least_levels(job)
        once = sum(cost[d - 1] for d in least)
        moment = sum(cost[d - 1] * (2 * tails[d - 1] + length[d - 1]) for d in least)
        crowding, top = self._crowding(fact, prices), max(prices)
        runs = tuple(Run(count * top, cost[d - 1] // top, 0, tails[d - 1]) for d, count in Counter(least).items())
        most = (once if job.rule.multiset else job.slots * cost[-1]) + crowding
        rate, room = job.slots * top, most - sum(run.work for run in runs)
        spare = Run(rate, ceil_div(room, rate), 0, fact.shape.tail)
        return _Tariff(cost, once, moment, crowding, runs, spare)

    def _crowding(self, fact: Facts, prices: Prices) -> int:
        regrets: dict[int, list[int]] = {}
        for d in fact.job.rule.multiset or ():
            offers = sorted((prices[k] * times[d - 1], k) for k, times in fact.shape.blocks.items() if len(times) >= d)
            dearer = offers[1][0] if len(offers) > 1 else offers[0][0]
            regrets.setdefault(offers[0][1], []).append(dearer - offers[0][0])
        return sum(sum(sorted(extra)[: max(0, len(extra) - self._classes[k].gpus)]) for k, extra in regrets.items())


def _neighbours(prices: Prices, step: float) -> Iterator[Prices]:
    for k in range(len(prices)):
        for price in (round(prices[k] * step), round(prices[k] / step)):
            yield (*prices[:k], max(1, price), *prices[k + 1 :])


def _merged(known: Facts, more: Facts) -> Facts:
    """One job with the iterations and levels of two of the same shape."""
    total = known.job.rule.min_total + more.job.rule.min_total
    rule = replace(known.job.rule, min_total=total)
    return replace(known, job=replace(known.job, iterations=known.job.iterations + more.job.iterations, rule=rule))
