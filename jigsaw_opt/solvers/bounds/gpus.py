"""GPU time as a resource: priced by type and memory, every block at its cheapest.

For any prices, the work of all jobs at the cheapest prices fits into the priced time of all GPUs, which is the
dual of the linear program that spreads work over unlike GPUs. Every price vector gives a bound; the search
for a good one needs no proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from jigsaw_opt.problem import critical
from jigsaw_opt.solvers.bounds.demand import Demand, Resource
from jigsaw_opt.solvers.bounds.facts import Facts, GpuClass

__all__ = ["gpu_resources"]

_MOST_CORNERS = 3
"""Up to so many classes of GPUs, every subset of them is tried on its own."""
_STEPS = 12
"""Prices that the search tries along one direction."""

Prices = tuple[int, ...]


def gpu_resources(facts: Sequence[Facts], classes: Sequence[GpuClass]) -> Iterator[Resource]:
    """GPU time at several prices: all alike, classes on their own, and the best prices found."""
    placed = [fact for fact in facts if fact.shape.blocks]
    market = _Market(placed, classes)
    starts = list(_corners(len(classes)))
    best = market.search(max(starts, key=market.load)) if len(classes) > 1 else starts[0]
    for prices in dict.fromkeys([*starts, best]):
        demands = [market.demand(fact, prices) if fact.shape.blocks else None for fact in facts]
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


class _Market:
    """Work of jobs by the prices of GPU classes; jobs that are alike are worked out once."""

    def __init__(self, facts: Sequence[Facts], classes: Sequence[GpuClass]) -> None:
        self._classes = classes
        self._groups: dict[tuple[object, ...], tuple[Facts, int]] = {}
        for fact in facts:
            key = _key(fact)
            self._groups[key] = (fact, self._groups.get(key, (fact, 0))[1] + 1)
        self._known: dict[tuple[object, ...], tuple[int, int]] = {}

    def capacity(self, prices: Prices) -> int:
        """Priced GPU time of a microsecond."""
        return sum(price * kind.gpus for price, kind in zip(prices, self._classes, strict=True))

    def load(self, prices: Prices) -> Fraction:
        """Time that all work takes at these prices."""
        work = sum(count * self._work_and_lag(fact, prices)[0] for fact, count in self._groups.values())
        return Fraction(work, self.capacity(prices))

    def demand(self, fact: Facts, prices: Prices) -> Demand:
        """Demand of one job."""
        work, lag = self._work_and_lag(fact, prices)
        return Demand(fact.job.release_us, work, fact.shape.tail, lag)

    def search(self, prices: Prices) -> Prices:
        """Prices of a larger load: one class after the other, by factors that come closer to 1."""
        scale = 840
        best = tuple(price * scale or 1 for price in prices)
        load, step = self.load(best), 2.0
        for _ in range(_STEPS):
            better = max(self._neighbours(best, step), key=self.load)
            if (found := self.load(better)) > load:
                best, load = better, found
            else:
                step = step**0.5
        return best

    def _neighbours(self, prices: Prices, step: float) -> Iterator[Prices]:
        for k in range(len(prices)):
            for price in (round(prices[k] * step), round(prices[k] / step)):
                yield (*prices[:k], max(1, price), *prices[k + 1 :])

    def _work_and_lag(self, fact: Facts, prices: Prices) -> tuple[int, int]:
        key = (_key(fact), prices)
        if key not in self._known:
            self._known[key] = self._price(fact, prices)
        return self._known[key]

    def _price(self, fact: Facts, prices: Prices) -> tuple[int, int]:
        job, blocks, tails = fact.job, fact.shape.blocks, fact.shape.tails
        levels = range(1, job.levels + 1)
        length = [min(times[d - 1] for times in blocks.values() if len(times) >= d) for d in levels]
        cost = [min(prices[k] * times[d - 1] for k, times in blocks.items() if len(times) >= d) for d in levels]
        least = critical.least_levels(job)
        once = sum(cost[d - 1] for d in least)
        moment = sum(cost[d - 1] * (2 * tails[d - 1] + length[d - 1]) for d in least)
        work = critical.least_work_us(job, cost)
        if job.rule.multiset is not None:
            work += job.iterations * self._crowding(fact, prices)
        return work, fact.lag(once, moment)

    def _crowding(self, fact: Facts, prices: Prices) -> int:
        """What an iteration costs more because a job has at most one worker on each GPU of its cheapest classes."""
        regrets: dict[int, list[int]] = {}
        for d in fact.job.rule.multiset or ():
            offers = sorted((prices[k] * t[d - 1], k) for k, t in fact.shape.blocks.items() if len(t) >= d)
            next_best = offers[1][0] if len(offers) > 1 else offers[0][0]
            regrets.setdefault(offers[0][1], []).append(next_best - offers[0][0])
        return sum(sum(sorted(extra)[: max(0, len(extra) - self._classes[k].gpus)]) for k, extra in regrets.items())


def _key(fact: Facts) -> tuple[object, ...]:
    job = fact.job
    return (id(job.blocks), job.rule.multiset, job.rule.min_contributors, job.rule.min_total, job.iterations)
