"""Groups of servers as bins: the links that leave them must carry all jobs that need several.

A job that no single group of servers has room for uses a link that leaves each group it touches, for all its transfers.
Within the objective that is tried a GPU may be too slow for the job: then only the others count as room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.compiled import critical
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.power import most_watts
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobClass, JobData
from jigsaw_opt.solvers.bounds.packing.column_generation import Item, KnapsackBins, Packing, PackingTest
from jigsaw_opt.solvers.bounds.packing.destructive import destructive
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.server_partition import ServerPartition, server_partitions


class ServerGroup(NamedTuple):
    """Groups of servers that are equivalent: how many, and the links and the GPUs, by server and class, of one."""

    number: int
    links: tuple[Link, ...]
    servers: tuple[tuple[int, int], ...]

    def room(self, job_class: JobClass, allowed: frozenset[int]) -> int:
        """Return the number of GPUs of allowed classes that may hold a worker, in one group."""
        return sum(job_class.gpus.get(s, 0) for s, k in self.servers if k in allowed)


class EquivalentJobs(NamedTuple):
    """Jobs that ask the same: what is known of one of them, and the names of all."""

    data: JobData
    names: tuple[str, ...]

    @property
    def number(self) -> int:
        """Return the number of these jobs."""
        return len(self.names)


def equivalent_groups(
    operations: Operations, classes: Sequence[GpuClass], partition: ServerPartition
) -> list[ServerGroup]:
    """Return the equivalence classes of the groups of a partition."""
    number = {(each.gpu_type, each.memory): k for k, each in enumerate(classes)}
    policies = dict.fromkeys((None, *(job.route_policy for job in operations.jobs)))
    parts = [operations.routes.under(policy).component for policy in policies]
    watts = most_watts(operations.cluster.capacities)
    groups: dict[int, list[tuple[int, int]]] = {}
    for s, server in enumerate(operations.cluster.servers):
        groups.setdefault(partition.group[s], []).append((s, number[server.gpu_type, server.gpu_memory]))
    equivalent: dict[tuple[object, ...], ServerGroup] = {}
    for group, servers in groups.items():
        links = tuple(operations.cluster.links[k] for k in sorted(partition.leaving[group]))
        # Servers of different components cannot serve one job, even if their GPUs are alike. Under a power cap some
        # may be of no use.
        hosts = [operations.cluster.servers[s] for s, _ in servers]
        gpus = Counter(
            (k, host.gpus, watts.get(host.name), *(part[s] for part in parts))
            for host, (s, k) in zip(hosts, servers, strict=True)
        )
        rates = Counter((link.bandwidth, link.latency_us) for link in links)
        key = (frozenset(gpus.items()), frozenset(rates.items()))
        known = equivalent.get(key, ServerGroup(0, links, tuple(servers)))
        equivalent[key] = known._replace(number=known.number + 1)
    return list(equivalent.values())


def equivalent_jobs(job_data: Sequence[JobData]) -> list[EquivalentJobs]:
    """Return the equivalence classes of jobs with one job class and the same iterations, levels and release."""
    equivalent: dict[tuple[object, ...], list[JobData]] = {}
    for data in job_data:
        job = data.job
        if data.job_class.ring is not None and data.job_class.blocks and data.job_class.sites:
            # Classes are shared objects (`gather_job_data`), so that identity says equality.
            key = (id(data.job_class), job.iterations, job.rule.min_total, job.release_us)
            equivalent.setdefault(key, []).append(data)
    return [EquivalentJobs(jobs[0], tuple(data.job.name for data in jobs)) for jobs in equivalent.values()]


def allowed_classes(data: JobData, limit: int) -> frozenset[int]:
    """Return the classes of GPUs on which a worker does not delay the job beyond a limit.

    A worker stays on its GPU, so in every iteration it makes its buckets ready there.

    `limit`: latest end of the job, in microseconds.
    """
    job, job_class = data.job, data.job_class
    # The worker counts at the least level, and the transfers at the best site: whatever the plan, it takes no less.
    lowest = critical.candidate_levels(job)[0]
    spans = {
        k: job.iterations
        * min(critical.tails_us(times, site.exchange.shortest)[lowest - 1] for site in job_class.sites)
        for k, times in job_class.blocks.items()
    }
    return frozenset(k for k, span in spans.items() if job.release_us + span <= limit)


def fewest_groups(groups: Sequence[ServerGroup], data: JobData, allowed: frozenset[int]) -> int | None:
    """Return the least number of groups that have room for all workers of a job, None if all together have not.

    `allowed`: indices of the classes of GPUs that may be used.
    """
    rooms = sorted(((group.room(data.job_class, allowed), group.number) for group in groups), reverse=True)
    # Groups with most room come first, so no other choice needs fewer.
    left, fewest = data.job.slots, 0
    for room, count in rooms:
        if room and room * count >= left:
            return fewest + -(-left // room)
        left, fewest = left - room * count, fewest + count
    return None


def least_transfers(data: JobData, links: Sequence[Link]) -> int:
    """Return the least time that one of the links is busy with all transfers of a job, in microseconds."""
    job, job_class = data.job, data.job_class
    return critical.least_transfer_us(job, job_class.exchange_over(job, job_class.channel_over(links)))


class LinkPacking:
    """Test whether the links that leave groups of servers can carry all jobs that need several groups.

    `context`: the instance, and what is known of its jobs and GPUs. `partition`: groups of servers of which no two
    share a link.
    """

    def __init__(self, context: BoundContext, partition: ServerPartition) -> None:
        cluster = context.operations.cluster
        self._finite = context.operations.horizon == "finite"
        self._test = PackingTest()
        self._groups = equivalent_groups(context.operations, context.gpu_classes, partition)
        self._jobs = equivalent_jobs(context.job_data)
        self._links = tuple(cluster.links[k].name for k in sorted(frozenset().union(*partition.leaving.values())))
        self._sentence = f"jobs too wide for one place packed onto the links of {len(partition.leaving)} places"

    def refutes(self, limit: int, budget: BoundBudget) -> Proof | None:
        """Return why no plan has an objective of at most `limit`; None where that stays open."""
        packing = self._packing(limit)
        if isinstance(packing, Proof):
            return packing
        found = self._test.refutes(packing, budget)
        return None if found is None else packing.proof(found, self._sentence, self._links, limit)

    def _packing(self, limit: int) -> Packing | Proof:
        """Return the packing of jobs onto links within an objective, or a proof that some job finds too few GPUs."""
        asked = []
        for jobs in self._jobs:
            allowed = allowed_classes(jobs.data, limit)
            fewest = fewest_groups(self._groups, jobs.data, allowed)
            if fewest is None:
                return self._too_few_gpus(jobs, allowed, limit)
            if fewest > 1:
                # One copy of an item is one job in one group; each job is in so many groups at least.
                asked.append((jobs, allowed, fewest * jobs.number))
        bins = (self._bins(group, [(jobs, allowed) for jobs, allowed, _ in asked], limit) for group in self._groups)
        demands, names = (demand for *_, demand in asked), (jobs.names for jobs, *_ in asked)
        return Packing(tuple(each for each in bins if each.items), tuple(demands), tuple(names))

    def _too_few_gpus(self, jobs: EquivalentJobs, allowed: frozenset[int], limit: int) -> Proof:
        room = sum(group.number * group.room(jobs.data.job_class, allowed) for group in self._groups)
        workers, names = jobs.data.job.slots, jobs.names[:1]
        terms = (Term("workers", workers, "", names), Term("GPUs that are fast enough", room, ""))
        argument = {"kind": "bins", "limit": limit, "links": [*self._links], "prices": {names[0]: 1}}
        return Proof(self._sentence, f"{workers} <= {room}", terms, names, links=self._links, argument=argument)

    def _bins(
        self, group: ServerGroup, asked: Sequence[tuple[EquivalentJobs, frozenset[int]]], limit: int
    ) -> KnapsackBins:
        """Return the links of each of some equivalent groups as one bin."""
        # All links of a group are one bin. Before the least head of its jobs none of them is in use, so that the bin
        # loses that time once for each link.
        width = len(group.links)
        items = {
            c: Item(least_transfers(jobs.data, group.links), jobs.number, width * self._head(group, jobs.data, allowed))
            for c, (jobs, allowed) in enumerate(asked)
            if width and group.room(jobs.data.job_class, allowed)
        }
        return KnapsackBins(group.number, width * limit, items)

    def _head(self, group: ServerGroup, data: JobData, allowed: frozenset[int]) -> int:
        """Return the least time at which bucket 1 is ready if a worker is in this group.

        All workers contribute to bucket 1, so the slowest of them decides.
        """
        if not self._finite:
            return 0
        usable = {k for s, k in group.servers if k in allowed and s in data.job_class.gpus}
        anywhere = min(site.ready[0] for site in data.job_class.sites)
        return data.job.release_us + max(anywhere, min(data.job_class.blocks[k][0] for k in usable))


def link_packings(context: BoundContext) -> Iterator[LinkPacking]:
    """Yield one test for servers, one for racks and so on, as far as no link leaves two of them."""
    for partition in server_partitions(context.operations.cluster):
        if not partition.shared:
            yield LinkPacking(context, partition)


LINK_BINS = Relaxation("link_bins", destructive(link_packings), frozenset({"makespan", "period"}))
"""The relaxation registered as ``link_bins``."""
