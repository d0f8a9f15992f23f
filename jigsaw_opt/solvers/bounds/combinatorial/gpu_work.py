"""GPU time as a resource: priced by type and memory, every block at its cheapest.

For any price vector, the work of all jobs at the cheapest prices fits into the priced time of all GPUs. That is the
dual of the linear program that spreads work over unlike GPUs (Lawler and Labetoulle, 1978). Every price vector gives
a bound; the search for a good one needs no proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobData
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WorkInterval

_MOST_SUBSETS = 3
"""Largest number of GPU classes of which every subset is tried: each class more doubles the subsets."""
_STEPS = 16
"""Rounds of the search for prices, each over all classes and jobs."""
_FINEST = 1000
"""Integer price of one at the start of the search: prices stay exact, and change by a thousandth at least."""

PriceVector = tuple[int, ...]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    return resource_bounds(context, context.shared(gpu_resources), known)


GPU_WORK = Relaxation("gpu_work", _bounds, instant=True, moves=True)
"""The relaxation registered as ``gpu_work``."""


def _dual_search(context: BoundContext) -> _DualSearch:
    # A job without any GPU for its last level has no plan, and its work is not known.
    return _DualSearch([data for data in context.job_data if data.job_class.blocks], context.gpu_classes)


def price_vectors(context: BoundContext) -> list[PriceVector]:
    """Return price vectors: one price for all classes, classes alone, and the best prices found."""
    dual = context.shared(_dual_search)
    vectors = [prices for prices in _unit_prices(len(context.gpu_classes)) if dual.load(prices)]
    if len(context.gpu_classes) > 1 and vectors:
        vectors.append(dual.search(max(vectors, key=dual.load)))
    return vectors


def gpu_resources(context: BoundContext) -> list[Resource]:
    """Return GPU time at several price vectors."""
    classes, servers = context.gpu_classes, context.operations.cluster.servers
    dual, found = context.shared(_dual_search), []
    for prices in context.shared(price_vectors):
        demands = [
            dual.demand(data, prices) if data.job_class.blocks else None for data in checking_deadline(context.job_data)
        ]
        priced = {(each.gpu_type, each.memory) for each, price in zip(classes, prices, strict=True) if price}
        names = tuple(server.name for server in servers if (server.gpu_type, server.gpu_memory) in priced)
        types = dict.fromkeys(each.gpu_type for each, price in zip(classes, prices, strict=True) if price)
        reason = f"GPU work on {', '.join(types)}"
        argument = gpu_argument(classes, prices)
        found.append(Resource(dual.capacity(prices), demands, reason, argument, names))
    return found


def gpu_argument(classes: Sequence[GpuClass], prices: PriceVector) -> Argument:
    """Return GPU time at a price vector as the resource of an argument."""
    priced = [
        {"gpu_type": each.gpu_type, "gpu_memory": each.memory, "price": price}
        for each, price in zip(classes, prices, strict=True)
        if price
    ]
    return {"kind": "gpus", "prices": priced}


def _unit_prices(count: int) -> Iterator[PriceVector]:
    """Yield the vector of equal prices, and those in which only some classes have a price."""
    yield (1,) * count
    if count <= _MOST_SUBSETS:
        for subset in range(1, 2**count - 1):
            yield tuple(subset >> k & 1 for k in range(count))


class _PricedWork(NamedTuple):
    """Cost of the work of jobs of one class at a price vector.

    `cost`: least price of a block, by level. `once, moment`: price of an iteration that no choice of levels goes below,
    and its moment (see `JobData.offset`). `overflow`: what an iteration costs more because a job has at most one worker
    on each GPU of its cheapest class.
    """

    cost: list[int]
    once: int
    moment: int
    overflow: int
    intervals: tuple[WorkInterval, ...]
    free_interval: WorkInterval


class _DualSearch:
    """Search for the price vector of the largest load; each class of jobs is priced once for a vector."""

    def __init__(self, job_data: Sequence[JobData], classes: Sequence[GpuClass]) -> None:
        self._classes = classes
        self._known: dict[tuple[int, PriceVector], _PricedWork] = {}
        self._together: dict[int, JobData] = {}
        for data in job_data:
            known = self._together.get(id(data.job_class))
            self._together[id(data.job_class)] = data if known is None else _merged(known, data)

    def capacity(self, prices: PriceVector) -> int:
        """Return the priced GPU time in a microsecond."""
        return sum(price * each.gpus for price, each in zip(prices, self._classes, strict=True))

    def load(self, prices: PriceVector) -> Fraction:
        """Return about the time that all work takes at these prices, in microseconds."""
        return Fraction(sum(self._work(data, prices) for data in self._together.values()), self.capacity(prices))

    def demand(self, data: JobData, prices: PriceVector) -> ResourceDemand:
        """Return the demand of one job."""
        priced = self._priced(data, prices)
        offset = data.offset(priced.once, priced.moment)
        work, tail = self._work(data, prices), data.job_class.tail
        return ResourceDemand(data.job.release_us, work, tail, offset, priced.intervals, priced.free_interval)

    def search(self, prices: PriceVector) -> PriceVector:
        """Return a price vector of a larger load: one price is changed at a time, by factors that come closer to 1."""
        # A factor never changes a price of 0, so such prices begin at the least integer.
        best = tuple(price * _FINEST or 1 for price in prices)
        load, step = self.load(best), 2.0
        for _ in range(_STEPS):
            better = max(_neighbours(best, step), key=self.load)
            if (found := self.load(better)) > load:
                best, load = better, found
            else:
                step = step**0.5
        return best

    def _work(self, data: JobData, prices: PriceVector) -> int:
        priced = self._priced(data, prices)
        return critical.least_work_us(data.job, priced.cost) + data.job.iterations * priced.overflow

    def _priced(self, data: JobData, prices: PriceVector) -> _PricedWork:
        key = (id(data.job_class), prices)
        if key not in self._known:
            self._known[key] = self._price(data, prices)
        return self._known[key]

    def _price(self, data: JobData, prices: PriceVector) -> _PricedWork:
        job, blocks, tails = data.job, data.job_class.blocks, data.job_class.tails
        levels = range(1, job.levels + 1)
        length = [min(times[d - 1] for times in blocks.values() if len(times) >= d) for d in levels]
        cost = [min(prices[k] * times[d - 1] for k, times in blocks.items() if len(times) >= d) for d in levels]
        least = critical.least_levels(job)
        # The cheapest price of a block, whichever class that is: every real choice of classes costs at least as much.
        once = sum(cost[d - 1] for d in least)
        moment = sum(cost[d - 1] * (2 * tails[d - 1] + length[d - 1]) for d in least)
        overflow, top = self._overflow(data, prices), max(prices)
        # No GPU does priced work faster than one of the highest price. A least length is rounded down.
        intervals = tuple(
            WorkInterval(count * top, cost[d - 1] // top, 0, tails[d - 1]) for d, count in Counter(least).items()
        )
        # Fixed levels leave no choice; under the other rules all workers may be at the last level.
        most = (once if job.rule.multiset else job.slots * cost[-1]) + overflow
        rate, room = job.slots * top, most - sum(interval.work for interval in intervals)
        # The room is a greatest amount, so that it is rounded up.
        free_interval = WorkInterval(rate, ceil_div(room, rate), 0, data.job_class.tail)
        return _PricedWork(cost, once, moment, overflow, intervals, free_interval)

    def _overflow(self, data: JobData, prices: PriceVector) -> int:
        # A job has at most one worker on each GPU. Where more blocks are cheapest on a class than it has GPUs, the
        # others cost more, by at least the difference to their second cheapest class. The smallest of these differences
        # are added up, so that the bound holds whichever blocks these are.
        regrets: dict[int, list[int]] = {}
        for d in data.job.rule.multiset or ():
            offers = sorted(
                (prices[k] * times[d - 1], k) for k, times in data.job_class.blocks.items() if len(times) >= d
            )
            dearer = offers[1][0] if len(offers) > 1 else offers[0][0]
            regrets.setdefault(offers[0][1], []).append(dearer - offers[0][0])
        return sum(sum(sorted(extra)[: max(0, len(extra) - self._classes[k].gpus)]) for k, extra in regrets.items())


def _neighbours(prices: PriceVector, step: float) -> Iterator[PriceVector]:
    for k in range(len(prices)):
        # Prices stay at least 1: from 0 no factor leads back.
        for price in (round(prices[k] * step), round(prices[k] / step)):
            yield (*prices[:k], max(1, price), *prices[k + 1 :])


def _merged(known: JobData, more: JobData) -> JobData:
    """Return one job with the iterations and levels of two jobs of the same class."""
    total = known.job.rule.min_total + more.job.rule.min_total
    rule = replace(known.job.rule, min_total=total)
    return replace(known, job=replace(known.job, iterations=known.job.iterations + more.job.iterations, rule=rule))
