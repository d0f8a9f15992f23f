"""Links as a resource, for jobs that no server alone, or no rack alone, has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Cluster, Link, joined_parts
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.solvers.bounds.combinatorial.resource_load import resource_bounds
from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.resource_demands import Resource, ResourceDemand, WorkInterval
from jigsaw_opt.solvers.bounds.server_partition import ServerPartition, server_partitions

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
    if not any(data.job_class.crosses and data.job_class.ring for data in job_data):
        return []
    found = [each for partition in server_partitions(cluster) for each in _boundaries(cluster, job_data, partition)]
    # A job that needs several parts of the cluster without this link has all its transfers over it.
    for cut in cluster.links if len(cluster.links) <= _MOST_CUTS else ():
        part = joined_parts(cluster, (link for link in cluster.links if link is not cut))
        group = tuple(part[server.name] for server in cluster.servers)
        demands = [_demand(data, [cut], int(_fewest(data, group) > 1)) for data in checking_deadline(job_data)]
        found.append(Resource(1, demands, f"transfers over link {cut.name}", links=(cut.name,)))
    return found


def _boundaries(cluster: Cluster, job_data: Sequence[JobData], partition: ServerPartition) -> Iterator[Resource]:
    """Yield the links of groups of servers, with the jobs that need several groups: each uses a link of every group.

    Where groups share links, a job uses one link less in all.
    """
    job_classes, shared = {id(data.job_class): data for data in job_data}, partition.shared
    groups = {key: frozenset(partition.group[s] for s in data.job_class.gpus) for key, data in job_classes.items()}
    needed = {key: _fewest(data, partition.group) - shared for key, data in checking_deadline(job_classes.items())}
    for reach in dict.fromkeys(groups[id(data.job_class)] for data in job_data if needed[id(data.job_class)] > 0):
        links = [cluster.links[k] for k in sorted(frozenset().union(*(partition.leaving[g] for g in reach)))]
        # A job that may also lie outside the reach may use links that are not counted.
        uses = [needed[id(data.job_class)] if groups[id(data.job_class)] <= reach else 0 for data in job_data]
        demands = [_demand(data, links, count) for data, count in checking_deadline(zip(job_data, uses, strict=True))]
        reason = f"transfers of jobs too wide for one place over {len(links)} links"
        yield Resource(len(links), demands, reason, links=tuple(link.name for link in links))


def _fewest(data: JobData, group: Sequence[int]) -> int:
    """Return the least number of groups that have room for all workers of a job; 0 where one is enough."""
    room: Counter[int] = Counter()
    for s, gpus in data.job_class.gpus.items():
        room[group[s]] += gpus
    left, count = data.job.slots, 0
    # Groups are filled from the largest on, so that no other choice needs fewer.
    for gpus in sorted(room.values(), reverse=True):
        left, count = left - gpus, count + 1
        if left <= 0:
            break
    # Where each server is a group, a placement on several servers is one on several groups.
    if data.job_class.crosses and len(set(group)) == len(group):
        count = max(count, 2)
    return count if count > 1 else 0


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
