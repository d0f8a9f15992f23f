"""Workers as items and GPUs as bins: a worker stays on one GPU with all its blocks.

Of the ``k m + g`` largest items in ``m`` bins, some ``g`` bins hold at least ``g (k + 1)``. So the fullest of them has
at least ``1 / g`` of the smallest so many (Haouari and Gharbi, "Fast lifting procedures for the bin packing problem",
2006).

Jobs of which no GPU has room for two at once keep their GPUs while they are present, on the finite horizon: their
workers are items of the length of a presence, and GPUs bins that hold one at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.bounds.arguments import NO_ARGUMENT, alike_jobs
from jigsaw_opt.solvers.bounds.combinatorial.gpu_work import gpu_argument
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand


class _PackedWorker(NamedTuple):
    """Least time that a worker keeps its GPU busy over all iterations, its job, and that job's head and tail."""

    load: int
    job: str
    head: int
    tail: int


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    """Yield bounds for each set of GPUs that some job may use, from the jobs that may use no others.

    The last one is for all jobs on all GPUs.
    """
    placed = [data for data in context.job_data if data.job_class.blocks]
    everything, servers = frozenset(range(len(context.gpu_classes))), context.operations.cluster.servers
    for classes in dict.fromkeys([*(frozenset(data.job_class.blocks) for data in placed), everything]):
        inside = [data for data in placed if classes >= data.job_class.blocks.keys()]
        prices = tuple(int(k in classes) for k in range(len(context.gpu_classes)))
        types = {context.gpu_classes[k][:2] for k in classes}
        bound = _packed(
            (worker for data in inside for worker in _workers(data)),
            Resource(
                sum(context.gpu_classes[k].gpus for k in classes),
                (),
                "the largest workers, of which some GPU has several",
                gpu_argument(context.gpu_classes, prices),
                tuple(server.name for server in servers if (server.gpu_type, server.gpu_memory) in types),
            ),
            context.operations.horizon == "finite",
        )
        if bound.value > known:
            known = bound.value
            yield bound


def _packed(workers: Iterable[_PackedWorker], resource: Resource, finite: bool) -> Bound:
    """Return the bound of the largest workers, of which some GPUs hold several."""
    items = sorted(workers, reverse=True)
    loads = fullest([worker.load for worker in items], resource.capacity)
    load, bins, first, last = max(loads, key=itemgetter(0), default=(0, 1, 0, 0))
    largest, smallest = items[:last], items[first:last]
    head = min((worker.head for worker in largest), default=0) if finite else 0
    tail = min((worker.tail for worker in largest), default=0) if finite else 0
    value = head + load + tail
    arithmetic = f"{head} + ceil(({added(worker.load for worker in smallest)}) / {bins}) + {tail} = {value}"
    terms = (
        Term("head", head),
        *(Term("work of one of the smallest workers", worker.load, jobs=(worker.job,)) for worker in smallest),
        Term("largest workers", len(largest), ""),
        Term("GPUs that hold at least as many as the smallest", bins, ""),
        Term("tail", tail),
    )
    facts: dict[str, dict[str, Any]] = {}
    for worker in largest:
        ends = {"head": worker.head, "tail": worker.tail} if finite else {}
        counts = facts.setdefault(worker.job, {**ends, "workers": Counter()})["workers"]
        counts[worker.load] += 1
    for own in facts.values():
        own["workers"] = [{"load": load, "count": count} for load, count in own["workers"].items()]
    argument = {"kind": "workers", "resource": resource.fact, "bins": bins, "jobs": alike_jobs(facts)}
    told = argument if facts else NO_ARGUMENT
    return Bound(value, Proof(resource.reason, arithmetic, terms, (*facts,), resource.servers, argument=told))


def _workers(data: JobData) -> Iterator[_PackedWorker]:
    """Yield the workers of a job.

    Over several iterations they may take turns, so each of them counts only for the least level.
    """
    least = critical.least_levels(data.job)
    # The rule binds each iteration by itself: a worker may have the least level in all of them.
    for level in least if data.job.iterations == 1 else (least[0],) * len(least):
        block = min(times[level - 1] for times in data.job_class.blocks.values() if len(times) >= level)
        job = data.job
        yield _PackedWorker(job.iterations * block, job.name, job.release_us, data.job_class.tail)


def fullest(loads: Sequence[int], gpus: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield, by powers of two of GPUs, a lower bound on the load of the fullest of them.

    The other numbers are how many GPUs these are, and the first and last of the items of which they hold at least as
    many.

    `loads`: what each item adds to the GPU that it is on, the largest first.
    """
    sums = [0, *accumulate(loads)]
    bins = 1
    while bins <= gpus:
        for count in checking_deadline(range(bins, len(loads) + 1, gpus)):
            # In the terms of the module's docstring, `count` is k m + g, with g `bins` and m `gpus`; g (k + 1) items
            # are left from `first` on.
            first = count - (count - bins) // gpus * bins - bins
            yield ceil_div(sums[count] - sums[first], bins), bins, first, count
        bins *= 2


WORKER_PACKING = Relaxation("worker_packing", _bounds, frozenset({"makespan", "period"}), instant=True)
"""The relaxation registered as ``worker_packing``."""


def _presence_bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    servers, every = context.operations.cluster.servers, context.job_data
    for usable in dict.fromkeys(frozenset(data.job_class.gpus) for data in every if data.job_class.gpus):
        inside = (data for data in every if data.job_class.gpus and data.job_class.gpus.keys() <= usable)
        apart = _apart(inside, max(servers[s].gpu_memory for s in usable))
        count, names = sum(servers[s].gpus for s in usable), tuple(servers[s].name for s in sorted(usable))
        works = {data.job.name: data.job.slots * _present_us(data) for data in apart}
        demands = [
            ResourceDemand(data.job.release_us, work, 0, 0) if (work := works.get(data.job.name)) else None
            for data in every
        ]
        argument, told = {"kind": "presences", "servers": names}, "jobs of which a GPU has room for one at a time"
        resource = Resource(count, demands, f"presences of {told}", argument, names)
        for bound in resource_bounds(context, [resource] if any(demands) else [], known):
            known = bound.value
            yield bound
        workers = (
            _PackedWorker(_present_us(data), data.job.name, data.job.release_us, 0)
            for data in apart
            for _ in range(data.job.slots)
        )
        reason = f"the longest presences of {told}; some GPU has several"
        bound = _packed(workers, resource._replace(reason=reason), finite=True)
        if bound.value > known:
            known = bound.value
            yield bound


def _apart(jobs: Iterable[JobData], memory: int) -> list[JobData]:
    """Return jobs of which a GPU of so much memory has room for no two, those of the largest states first."""
    chosen: list[JobData] = []
    least = 0
    for data in sorted(jobs, key=lambda data: -data.job.state_bytes):
        activations = data.job.activation_bytes[critical.candidate_levels(data.job)[0] - 1]
        if not chosen:
            chosen, least = [data], activations
        elif data.job.state_bytes + chosen[-1].job.state_bytes + max(activations, least) > memory:
            chosen.append(data)
            least = min(least, activations)
    return chosen


def _present_us(data: JobData) -> int:
    return data.completion - data.job.release_us


PRESENCE_PACKING = Relaxation(
    "presence_packing",
    _presence_bounds,
    frozenset({"makespan"}),
    instant=True,
    fits=lambda operations: operations.has_scarce_holdings,
)
"""The relaxation registered as ``presence_packing``."""
