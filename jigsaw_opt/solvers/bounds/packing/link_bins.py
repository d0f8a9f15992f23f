"""Groups of servers as bins: the links that leave them must carry all jobs that need several.

A job that no single group of servers has room for uses a link that leaves each group it touches, for all its transfers.
Within the objective that is tried a GPU may be too slow for the job: then only the others count as room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jigsaw_opt.solvers.bounds.job_data import JobData
from jigsaw_opt.solvers.bounds.packing.column_generation import Item, KnapsackBins, Packing, PackingTest
from jigsaw_opt.solvers.bounds.packing.destructive import destructive
from jigsaw_opt.solvers.bounds.packing.multi_server import (
    EquivalentJobs,
    ServerGroup,
    allowed_classes,
    equivalent_groups,
    equivalent_jobs,
    fewest_groups,
    least_transfers,
)
from jigsaw_opt.solvers.bounds.proof import Proof, Term
from jigsaw_opt.solvers.bounds.relaxation import BoundBudget, BoundContext, Relaxation
from jigsaw_opt.solvers.bounds.server_partition import ServerPartition, server_partitions


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
        return None if found is None else packing.proof(found, self._sentence, self._links)

    def _packing(self, limit: int) -> Packing | Proof:
        """Return the packing of jobs onto links within an objective, or a proof that some job finds too few GPUs."""
        asked = []
        for jobs in self._jobs:
            allowed = allowed_classes(jobs.data, limit)
            fewest = fewest_groups(self._groups, jobs.data, allowed)
            if fewest is None:
                return self._too_few_gpus(jobs, allowed)
            if fewest > 1:
                # One copy of an item is one job in one group; each job is in so many groups at least.
                asked.append((jobs, allowed, fewest * jobs.number))
        bins = (self._bins(group, [(jobs, allowed) for jobs, allowed, _ in asked], limit) for group in self._groups)
        demands, names = (demand for *_, demand in asked), (jobs.names for jobs, *_ in asked)
        return Packing(tuple(each for each in bins if each.items), tuple(demands), tuple(names))

    def _too_few_gpus(self, jobs: EquivalentJobs, allowed: frozenset[int]) -> Proof:
        room = sum(group.number * group.room(jobs.data.job_class, allowed) for group in self._groups)
        workers, names = jobs.data.job.slots, jobs.names[:1]
        terms = (Term("workers", workers, "", names), Term("GPUs that are fast enough", room, ""))
        return Proof(self._sentence, f"{workers} <= {room}", terms, names, links=self._links)

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
