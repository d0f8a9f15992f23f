"""Links as a resource, for jobs that no server alone, or no rack alone, has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Cluster, Link, joined_parts
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WorkInterval
from jigsaw_opt.solvers.bounds.server_partition import server_partitions

_MOST_CUTS = 32
"""Largest number of links of a cluster whose single links are tried: each takes a look at all servers and jobs."""


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    return resource_bounds(context, context.shared(link_resources), known)


LINK_TRANSFERS = Relaxation(
    "link_transfers", _bounds, instant=True, fits=lambda operations: bool(operations.cluster.links), moves=True
)
"""The relaxation registered as ``link_transfers``."""


def link_resources(context: BoundContext) -> list[Resource]:
    """Return the links that leave servers, racks and so on, and each link without which some job finds no room."""
    return link_demands(context.operations.cluster, context.job_data)


def link_demands(cluster: Cluster, job_data: Sequence[JobData]) -> list[Resource]:
    """Return these links with the demands of some jobs, or of some placements of jobs."""
    job_classes = {id(data.job_class): data for data in job_data}
    wide = [data for data in job_classes.values() if data.job_class.crosses and data.job_class.ring]
    sets = dict[frozenset[int], str]()
    for partition in server_partitions(cluster) if wide else ():
        for reach in dict.fromkeys(frozenset(partition.group[s] for s in data.job_class.gpus) for data in wide):
            leaving = frozenset().union(*(partition.leaving[group] for group in reach))
            sets.setdefault(leaving, f"transfers of jobs too wide for one place over {len(leaving)} links")
    # A job that needs several parts of the cluster without a link has all its transfers over it.
    if wide and len(cluster.links) <= _MOST_CUTS:
        sets.update((frozenset([k]), f"transfers over link {link.name}") for k, link in enumerate(cluster.links))
    found = []
    for numbers, reason in checking_deadline(sets.items()):
        links = [cluster.links[k] for k in sorted(numbers)]
        part = joined_parts(cluster, (link for k, link in enumerate(cluster.links) if k not in numbers))
        group = [part[server.name] for server in cluster.servers]
        ends = {frozenset(part[end] for end in link.ends) for link in links}
        needed = {key: _links_needed(data, group, ends) for key, data in job_classes.items()}
        demands = [_demand(data, links, needed[id(data.job_class)]) for data in checking_deadline(job_data)]
        if any(demands):
            names = tuple(link.name for link in links)
            found.append(Resource(len(links), demands, reason, {"kind": "links", "links": names}, links=names))
    return found


def _links_needed(data: JobData, group: Sequence[int], ends: Collection[frozenset[int]]) -> int:
    """Return how many links every placement of a job uses at least, of those that leave groups of servers.

    `ends`: the groups that each of these links joins.
    """
    job_class, room = data.job_class, Counter[int]()
    for s, gpus in job_class.gpus.items():
        room[group[s]] += gpus
    left, count = data.job.slots, 0
    # Groups are filled from the largest on, so that no other choice needs fewer.
    for gpus in sorted(room.values(), reverse=True):
        if left > 0:
            left, count = left - gpus, count + 1
    # Where each server is a group, a placement on several servers is one on several groups.
    if job_class.crosses and len(room) == len(job_class.gpus):
        count = max(count, 2)
    # Each group is left by a link. If one may leave two of them, the links still join all groups.
    return 0 if count < 2 else count - any(len(both) == 2 and both <= room.keys() for both in ends)


def _demand(data: JobData, links: Sequence[Link], uses: int) -> ResourceDemand | None:
    """Return the demand of a job that uses some number of the links, whichever they are."""
    job_class = data.job_class
    if uses < 1 or job_class.ring is None or not job_class.blocks:
        return None
    channel = job_class.channel_over(links)
    exchange = job_class.exchange_over(data.job, channel)
    once, first = sum(exchange.shortest), min(times[0] for times in job_class.blocks.values())
    longest = sum(data.job.transfer_us(operation.bucket, data.job.slots, channel) for operation in data.job.transfers)
    # One transfer after the other up to the barrier: their middle is at least half of their sum before it.
    return ResourceDemand(
        head=data.job.release_us + first,
        work=critical.least_transfer_us(data.job, exchange) * uses,
        tail=0,
        offset=uses * data.offset(once, once * once),
        intervals=tuple(_intervals(job_class.blocks, exchange.shortest, uses)),
        free_interval=WorkInterval(uses, max(0, longest - once), first, 0),
    )


def _intervals(blocks: Mapping[int, Sequence[int]], transfers: Sequence[int], uses: int) -> Iterator[WorkInterval]:
    """Yield the transfers of an iteration, one after the other, each once its bucket can be ready."""
    before, after = 0, sum(transfers)
    for bucket, length in enumerate(transfers):
        # A transfer waits for the one before it and for its bucket, on the fastest GPU.
        before = max(before, min(times[bucket] for times in blocks.values() if len(times) > bucket))
        after -= length
        yield WorkInterval(uses, length, before, after)
        before += length
