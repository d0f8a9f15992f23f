"""Kinds of placement of a job: how many workers sit on GPUs of each class, and whether links join them.

On GPUs of one class a job takes as long as it takes there, and its work is theirs alone; between servers it also takes
links. What holds for every kind by itself is more than what holds for the best of everything at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice, pairwise
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.costs import ceil_div, deepest_level, lower_hull
from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import PriceVector, gpu_argument, price_vectors
from jigsaw_opt.solvers.bounds.combinatorial.link_transfers import link_demands
from jigsaw_opt.solvers.bounds.job_data import JobClass, JobData, least_tails
from jigsaw_opt.solvers.bounds.relaxation import BoundContext
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WorkInterval

_MOST_NUMBERS = 10_000
"""A job with more numbers of workers by class of GPU than this is its only kind of placement."""
_MOST_KINDS = 9
"""Largest number of kinds of a job whose workers sit on several servers: more of them are put together."""

Counts = tuple[int, ...]
"""Number of workers on GPUs of each class."""


class PlacementKind(NamedTuple):
    """One kind of placement: its job, what holds for it alone, and the numbers of workers that it stands for."""

    job: int
    data: JobData
    counts: tuple[Counts, ...]


def whole_jobs(context: BoundContext) -> list[PlacementKind]:
    """Return one kind of placement for each job, which stands for all of them."""
    return [PlacementKind(k, data, ()) for k, data in enumerate(context.job_data)]


def placement_kinds(context: BoundContext) -> list[PlacementKind]:
    """Return the kinds of placement of all jobs."""
    known: dict[int, list[tuple[JobClass, tuple[Counts, ...]]]] = {}
    found = []
    for k, data in enumerate(checking_deadline(context.job_data)):
        if id(data.job_class) not in known:
            every = _job_classes(context, data) if data.job_class.blocks else ()
            # No site means no room for the last level. A job without any place has no plan, and nothing is claimed.
            known[id(data.job_class)] = [both for both in every if both[0].sites] or [(data.job_class, ())]
        for job_class, counts in known[id(data.job_class)]:
            completion = data.job.release_us + critical.least_span_us(data.job, job_class.sites)
            found.append(PlacementKind(k, JobData(data.job, job_class, max(completion, data.completion)), counts))
    return found


def _job_classes(context: BoundContext, data: JobData) -> Iterator[tuple[JobClass, tuple[Counts, ...]]]:
    """Yield what holds for each kind of placement of a job, with its numbers of workers."""
    job, job_class, classes = data.job, data.job_class, context.gpu_classes
    servers = context.operations.cluster.servers
    number = {(each.gpu_type, each.memory): c for c, each in enumerate(classes)}
    of = {s: number[servers[s].gpu_type, servers[s].gpu_memory] for s in job_class.gpus}
    room = [sum(count for s, count in job_class.gpus.items() if of[s] == c) for c in range(len(classes))]
    across = job_class.ring is not None and job.slots > 1
    numbers = list(islice(_vectors(job.slots, room), _MOST_NUMBERS + 1)) if across else []
    if len(numbers) > _MOST_NUMBERS:
        return
    for c in sorted(set(of.values())):
        alone = [s for s, count in job_class.gpus.items() if of[s] == c and count >= job.slots]
        if alone:
            counts = tuple(job.slots if k == c else 0 for k in range(len(classes)))
            channel = Channel(
                (), max(servers[s].fabric_bandwidth for s in alone), min(servers[s].fabric_latency_us for s in alone)
            )
            yield _restricted(context, data, (counts,), dict.fromkeys(alone, job.slots), channel, crosses=False)
    if job_class.ring is None:
        return
    several = [sum(1 for s in of if of[s] == c) > 1 for c in range(len(classes))]
    vectors = [
        counts
        for counts in numbers
        if sum(map(bool, counts)) > 1 or any(count and many for count, many in zip(counts, several, strict=True))
    ]
    step = -(-len(vectors) // _MOST_KINDS) or 1
    for first in range(0, len(vectors), step):
        chunk = tuple(vectors[first : first + step])
        most = [max(column) for column in zip(*chunk, strict=True)]
        gpus = {s: min(count, most[of[s]]) for s, count in job_class.gpus.items() if most[of[s]]}
        yield _restricted(context, data, chunk, gpus, job_class.ring, crosses=True)


def _vectors(workers: int, room: Sequence[int]) -> Iterator[Counts]:
    """Yield the numbers of workers on GPUs of each class that have room for them."""
    if len(room) == 1:
        if workers <= room[0]:
            yield (workers,)
        return
    for count in range(max(0, workers - sum(room[1:])), min(workers, room[0]) + 1):
        for rest in _vectors(workers - count, room[1:]):
            yield (count, *rest)


def _restricted(
    context: BoundContext,
    data: JobData,
    counts: tuple[Counts, ...],
    gpus: dict[int, int],
    channel: Channel,
    crosses: bool,
) -> tuple[JobClass, tuple[Counts, ...]]:
    job, classes = data.job, context.gpu_classes
    most = [max(column) for column in zip(*counts, strict=True)]
    blocks = {c: times for c, times in data.job_class.blocks.items() if most[c]}
    room: Counter[tuple[str, int]] = Counter()
    for c, count in enumerate(most):
        if count:
            room[classes[c].gpu_type, deepest_level(job, classes[c].memory)] += count
    places = critical.sites_over(job, room, channel)
    tails = least_tails(job, places, blocks)
    tail = min(tails[level - 1] for level in critical.candidate_levels(job))
    ring = channel if crosses else None
    iteration = min((site.iteration_us for site in places), default=0)
    return JobClass(gpus, places, iteration, tails, tail, blocks, ring, crosses), counts


def kind_prices(context: BoundContext) -> list[PriceVector]:
    """Return the price vectors of all jobs together, and those in which one class alone has a price."""
    count = len(context.gpu_classes)
    alone = [tuple(int(k == c) for k in range(count)) for c in range(count)]
    return list(dict.fromkeys([*context.shared(price_vectors), *alone]))


def kind_resources(context: BoundContext, kinds: Sequence[PlacementKind]) -> list[Resource]:
    """Return GPU time at several price vectors, and links, with what each kind asks of them."""
    classes, found = context.gpu_classes, []
    for prices in kind_prices(context):
        demands = [_demand(kind, prices) for kind in checking_deadline(kinds)]
        capacity = sum(price * each.gpus for price, each in zip(prices, classes, strict=True))
        types = dict.fromkeys(each.gpu_type for each, price in zip(classes, prices, strict=True) if price)
        argument = gpu_argument(classes, prices)
        found.append(Resource(capacity, demands, f"GPU work on {', '.join(types)}", argument))
    return [*found, *link_demands(context.operations.cluster, [kind.data for kind in kinds])]


def _demand(kind: PlacementKind, prices: PriceVector) -> ResourceDemand | None:
    data, job = kind.data, kind.data.job
    blocks = data.job_class.blocks
    # A level that does not fit into the memory of a class counts as the last one that does.
    cost = {c: [prices[c] * times[min(d, len(times) - 1)] for d in range(job.levels)] for c, times in blocks.items()}
    if not kind.counts or not any(prices[c] for c in cost):
        return None
    n, least = job.iterations, critical.least_levels(job)
    intervals = []
    for c, times in blocks.items():
        count = min(counts[c] for counts in kind.counts)
        tails = least_tails(job, data.job_class.sites, {c: times})
        # The workers on a class have at least the lowest of the least levels.
        for d, several in sorted(Counter(least[:count]).items()) if prices[c] else ():
            length = times[min(d, len(times)) - 1]
            intervals.append(WorkInterval(several * prices[c], length, 0, tails[d - 1]))
    work = min(_least_work(kind, counts, cost) for counts in kind.counts)
    rate = max(sum(prices[c] * counts[c] for c in blocks) for counts in kind.counts)
    most = max(_most_work(kind, counts, cost) for counts in kind.counts)
    room = WorkInterval(
        rate, max(0, ceil_div(most - sum(each.work for each in intervals), rate)), 0, data.job_class.tail
    )
    work = max(work, n * sum(each.work for each in intervals))
    return ResourceDemand(job.release_us, work, data.job_class.tail, 0, tuple(intervals), room)


def _most_work(kind: PlacementKind, counts: Counts, cost: dict[int, list[int]]) -> int:
    """Return the most priced work of an iteration."""
    if kind.data.job.rule.multiset is None:
        return sum(counts[c] * cost[c][-1] for c in cost)
    return -_assigned(kind.data.job.rule.multiset, counts, {c: [-each for each in costs] for c, costs in cost.items()})


def _least_work(kind: PlacementKind, counts: Counts, cost: dict[int, list[int]]) -> int:
    """Return the least priced work of all iterations with so many workers on each class."""
    job = kind.data.job
    rule, n = job.rule, job.iterations
    if rule.multiset is not None:
        return n * _assigned(rule.multiset, counts, cost)
    total = n * sum(counts[c] * cost[c][0] for c in cost)
    # Some workers reach the last level in every iteration, those whose rise is the cheapest.
    left = rule.min_contributors
    for rise, c in sorted((costs[-1] - costs[0], c) for c, costs in cost.items()):
        taken = min(left, counts[c])
        total, left = total + n * taken * rise, left - taken
    missing = rule.min_total - n * (job.slots + rule.min_contributors * (job.levels - 1))
    sides = [
        (Fraction(dear - cheap, high - low), (high - low) * n * counts[c])
        for c, costs in cost.items()
        for (low, cheap), (high, dear) in pairwise(lower_hull(enumerate(costs, 1)))
    ]
    rest = Fraction(0)
    for slope, room in sorted(sides):
        taken = max(0, min(missing, room))
        rest, missing = rest + slope * taken, missing - taken
    return total + -(-rest.numerator // rest.denominator)


def _assigned(levels: Sequence[int], counts: Counts, cost: dict[int, list[int]]) -> int:
    """Return the least cost of blocks at these levels, with so many on each class."""
    used = [c for c in cost if counts[c]]
    if len(used) == 2:
        one, other = (cost[c] for c in used)
        differences = sorted(one[d - 1] - other[d - 1] for d in levels)
        return sum(other[d - 1] for d in levels) + sum(differences[: counts[used[0]]])
    return sum(count * min(cost[c][d - 1] for c in used) for d, count in Counter(levels).items())
