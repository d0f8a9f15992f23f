"""Combinatorial lower bounds: what every solver starts from, so that even greedy returns a certified gap.

Each bound is a proof in exact arithmetic; ``docs/bounds.md`` has the arguments. None expands iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.costs import ceil_div, ceil_fraction
from jigsaw_opt.problem.pieces import PieceGraph, Pieces

__all__ = ["Bound", "lower_bound"]

_MOST_HEADS = 12
"""Distinct releases that the load bound is tried from."""
_PRICE_STEPS = {1: 1, 2: 32, 3: 12}
"""Steps of the grid of prices by number of GPU types; beyond three types only corners and the middle are tried."""
_SCALE = 2**24
"""Fractions are summed in units of one part of so many."""


class Bound(NamedTuple):
    """A proven lower bound on the objective.

    Parameters
    ----------
    value
        The bound, in the unit of the objective.
    reason
        What proves it, in the user's terms.
    """

    value: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Facts:
    """What no plan can beat for one job; times in microseconds, `iteration` the least length of an iteration."""

    job: PieceGraph
    gpus: dict[int, int]
    types: tuple[str, ...]
    iteration: int
    transfers: tuple[int, ...]

    @property
    def span(self) -> int:
        return self.job.release_us + self.job.iterations * self.iteration


def lower_bound(pieces: Pieces) -> Bound:
    """Best combinatorial lower bound on the objective of an instance.

    Parameters
    ----------
    pieces
        The instance, cut. Where it has no plan, the bound is still a valid number and means nothing.
    """
    facts = _gather(pieces)
    if pieces.objective == "weighted_completion":
        bounds = tuple(_completion_bounds(pieces, facts))
    else:
        bounds = (
            *_critical_paths(facts),
            *_gpu_loads(pieces, facts),
            _pigeonhole(pieces, facts),
            *_link_loads(pieces, facts),
        )
    best = Bound(1 if pieces.horizon == "cyclic" else 0, "every plan")
    return max((best, *bounds), key=lambda bound: bound.value)


def _gather(pieces: Pieces) -> list[_Facts]:
    """Facts of every job; jobs that are alike share the work of finding them."""
    known: dict[tuple[object, ...], tuple[dict[int, int], tuple[str, ...], int, tuple[int, ...]]] = {}
    facts = []
    for job in pieces.jobs:
        # Blocks of one model and width are one object, so its identity says which model it is.
        key = (id(job.blocks), job.rule.multiset, job.rule.min_contributors)
        if key not in known:
            known[key] = _facts_of(pieces, job)
        facts.append(_Facts(job, *known[key]))
    return facts


def _facts_of(pieces: Pieces, job: PieceGraph) -> tuple[dict[int, int], tuple[str, ...], int, tuple[int, ...]]:
    gpus = critical.usable_gpus(pieces, job)
    types = tuple(dict.fromkeys(pieces.cluster.servers[s].gpu_type for s in gpus))
    transfers = critical.shortest_transfers(job, critical.best_channel(pieces, job, gpus))
    return gpus, types, critical.least_iteration_us(pieces, job, gpus), transfers


def _critical_paths(facts: Sequence[_Facts]) -> Iterator[Bound]:
    """A job takes its release and all its iterations, one after the other."""
    longest = max(facts, key=lambda fact: fact.span)
    yield Bound(longest.span, f"critical path of job {longest.job.name}")


def _gpu_loads(pieces: Pieces, facts: Sequence[_Facts]) -> Iterator[Bound]:
    """Work on GPUs: for any prices of GPU time by type, all work at its cheapest against all time there is."""
    counts: dict[str, int] = {}
    for server in pieces.cluster.servers:
        counts[server.gpu_type] = counts.get(server.gpu_type, 0) + server.gpus
    types = [t for t in counts if any(t in fact.types for fact in facts)]
    for late in _from_heads([fact for fact in facts if fact.types]):
        head = min(fact.job.release_us for fact in late)
        tail = min(map(_least_tail, late)) if pieces.horizon == "finite" else 0
        costs = _Costs(late)
        for prices in _price_grid(len(types)):
            work = costs.work(dict(zip(types, prices, strict=True)))
            time = sum(price * counts[t] for t, price in zip(types, prices, strict=True))
            used = ", ".join(t for t, price in zip(types, prices, strict=True) if price)
            yield Bound(head + ceil_div(work, time) + tail, f"GPU work on {used}")


class _Costs:
    """Least priced work of a set of jobs; jobs with the same blocks, rule and iterations are worked out once."""

    def __init__(self, facts: Iterable[_Facts]) -> None:
        self._classes: dict[tuple[object, ...], tuple[_Facts, int]] = {}
        for fact in facts:
            key = (id(fact.job.blocks), fact.job.rule, fact.job.iterations)
            self._classes[key] = (fact, self._classes.get(key, (fact, 0))[1] + 1)

    def work(self, prices: dict[str, int]) -> int:
        """Sum over all blocks of the cheapest priced duration."""
        return sum(count * self._least(fact, prices) for fact, count in self._classes.values())

    def _least(self, fact: _Facts, prices: dict[str, int]) -> int:
        tables = [(fact.job.blocks[0].duration_us[t], prices[t]) for t in fact.types]
        cost = [min(price * table[d] for table, price in tables) for d in range(fact.job.levels)]
        return critical.least_work_us(fact.job, cost)


def _from_heads(facts: Sequence[_Facts]) -> Iterator[list[_Facts]]:
    """Sets of jobs that are released at or after some moment."""
    releases = sorted({fact.job.release_us for fact in facts})
    step = max(1, len(releases) // _MOST_HEADS)
    for head in releases[::step]:
        yield [fact for fact in facts if fact.job.release_us >= head]


def _least_tail(fact: _Facts) -> int:
    """Least time from the end of a block to the end of its job."""
    tables = [fact.job.blocks[0].duration_us[t] for t in fact.types]
    levels = critical.candidate_levels(fact.job)
    return min(critical.tail_us(table, fact.transfers, d) - table[d - 1] for table in tables for d in levels)


def _price_grid(types: int) -> Iterator[tuple[int, ...]]:
    """Integer prices, not all zero."""
    steps = _PRICE_STEPS.get(types, 1)
    for prices in product(range(steps + 1), repeat=types) if types <= 3 else _corners(types):
        if sum(prices) == steps or (types > 3 and any(prices)):
            yield prices


def _corners(types: int) -> Iterator[tuple[int, ...]]:
    yield (1,) * types
    for chosen in range(types):
        yield tuple(int(k == chosen) for k in range(types))


def _pigeonhole(pieces: Pieces, facts: Sequence[_Facts]) -> Bound:
    """A worker stays on one GPU: of the ``k m + 1`` largest workers, some GPU has at least ``k + 1``."""
    loads = sorted((load for fact in facts for load in _least_loads(fact)), reverse=True)
    gpus = pieces.cluster.gpu_count
    sums = (sum(loads[k * gpus - i] for i in range(k + 1)) for k in range(1, (len(loads) - 1) // gpus + 1) if k <= 8)
    return Bound(max(sums, default=0), "the largest workers, of which some GPU has several")


def _least_loads(fact: _Facts) -> list[int]:
    """Least time that each worker of a job keeps its GPU busy over all iterations."""
    if not fact.types:
        return []
    level = critical.least_levels(fact.job)[0]
    least = min(fact.job.blocks[0].duration_us[t][level - 1] for t in fact.types)
    return [fact.job.iterations * least] * fact.job.slots


def _link_loads(pieces: Pieces, facts: Sequence[_Facts]) -> Iterator[Bound]:
    """Jobs too wide for any server use links; all their use together against all links."""
    links = pieces.cluster.links
    wide = [fact for fact in facts if fact.gpus and max(fact.gpus.values()) < fact.job.slots]
    if not links or not wide:
        return
    fastest = Channel((), max(link.bandwidth for link in links), min(link.latency_us for link in links))
    own = _own_links(pieces)
    work = 0
    for fact in wide:
        once = sum(critical.shortest_transfers(fact.job, fastest))
        work += fact.job.iterations * once * (_fewest_servers(fact) if own else 1)
    head = min(fact.job.release_us + min(fact.job.blocks[0].duration_us[t][0] for t in fact.types) for fact in wide)
    head = head if pieces.horizon == "finite" else 0
    yield Bound(head + ceil_div(work, own or len(links)), "transfers of the jobs that are wider than a server")


def _own_links(pieces: Pieces) -> int:
    """Number of links from a server, if each server has one of its own that every ring over it uses; else 0."""
    names = {server.name for server in pieces.cluster.servers}
    ends = [end for link in pieces.cluster.links for end in link.ends if end in names]
    shared = any(set(link.ends) <= names for link in pieces.cluster.links)
    return len(ends) if sorted(ends) == sorted(names) and not shared else 0


def _fewest_servers(fact: _Facts) -> int:
    """Least number of servers that hold all workers of a job."""
    left, count = fact.job.slots, 0
    for gpus in sorted(fact.gpus.values(), reverse=True):
        if left <= 0:
            break
        left, count = left - gpus, count + 1
    return count


def _completion_bounds(pieces: Pieces, facts: Sequence[_Facts]) -> Iterator[Bound]:
    """Weighted completion: every job on its own, or all work on one machine as fast as all GPUs together."""
    yield Bound(sum(fact.job.weight * fact.span for fact in facts), "critical paths of all jobs")
    if all(fact.types for fact in facts):
        yield Bound(_mean_busy_time(pieces, facts), "all GPU work in Smith's order")


def _mean_busy_time(pieces: Pieces, facts: Sequence[_Facts]) -> int:
    """Sum of weighted mean busy times, least in preemptive Smith's order, and the time from there to each job's end.

    After Goemans' mean busy time relaxation: blocks shrunk to their least duration leave a schedule of ``W_j``
    units of work at a rate of at most the number of GPUs, and a job ends later than the mean of its work by what
    its iterations still owe.
    """
    gpus = pieces.cluster.gpu_count
    works, lags = zip(*map(_work_and_lag, facts), strict=True)
    jobs = [(fact.job.release_us * gpus, work, fact.job.weight) for fact, work in zip(facts, works, strict=True)]
    busy = _smith(jobs)
    owed = sum(_floor(fact.job.weight * lag) for fact, lag in zip(facts, lags, strict=True))
    return ceil_fraction(Fraction(busy, gpus * _SCALE) + Fraction(owed, _SCALE))


def _floor(value: Fraction) -> int:
    """The value in units of ``1 / _SCALE``, rounded down: sums of exact fractions would grow without end."""
    return value.numerator * _SCALE // value.denominator


def _work_and_lag(fact: _Facts) -> tuple[int, Fraction]:
    """Least work of a job, and the least time from the mean of that work to the job's end."""
    job = fact.job
    tables = [job.blocks[0].duration_us[t] for t in fact.types]
    work, moment = 0, Fraction(0)
    for level in critical.least_levels(job):
        length = min(table[level - 1] for table in tables)
        tail = min(critical.tail_us(table, fact.transfers, level) - table[level - 1] for table in tables) + length
        later = Fraction((job.iterations - 1) * fact.iteration, 2)
        work += job.iterations * length
        moment += job.iterations * length * (tail - Fraction(length, 2) + later)
    return work, moment / work


def _smith(jobs: Sequence[tuple[int, int, int]]) -> int:
    """Least sum of weight times mean busy time of (release, work, weight) on one machine of speed 1, preemptive.

    In units of ``1 / _SCALE``, rounded down.
    """
    import heapq

    waiting = sorted(range(len(jobs)), key=lambda k: jobs[k][0])
    left = [work for _, work, _ in jobs]
    ready: list[tuple[Fraction, int]] = []
    moment, total, position = 0, 0, 0
    while position < len(waiting) or ready:
        if not ready:
            moment = max(moment, jobs[waiting[position]][0])
        while position < len(waiting) and jobs[waiting[position]][0] <= moment:
            k = waiting[position]
            heapq.heappush(ready, (Fraction(-jobs[k][2], jobs[k][1]), k))
            position += 1
        ratio, k = ready[0]
        until = jobs[waiting[position]][0] if position < len(waiting) else moment + left[k]
        run = min(left[k], until - moment)
        total += _floor(-ratio * run * (2 * moment + run) / 2)
        moment, left[k] = moment + run, left[k] - run
        if left[k] == 0:
            heapq.heappop(ready)
    return total
