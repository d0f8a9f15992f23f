"""Servers, or racks, as bins: their links must carry every job that needs several of them.

A job that no single group of servers has room for uses a link that leaves each group it touches, for all its
transfers. Within the objective at hand a slow GPU may be too slow for the job: then only the others are room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.budget import Budget
from jigsaw_opt.solvers.bounds.job_data import GpuClass, JobData
from jigsaw_opt.solvers.bounds.packing.column_generation import KnapsackBins, Packing, PackingTest
from jigsaw_opt.solvers.bounds.packing.knapsack import Item
from jigsaw_opt.solvers.bounds.packing.multi_server import (
    EquivalentJobs,
    ServerGroup,
    allowed_classes,
    equivalent_groups,
    equivalent_jobs,
    fewest_groups,
    least_transfers,
)
from jigsaw_opt.solvers.bounds.server_partition import ServerPartition, server_partitions

__all__ = ["LinkPacking", "link_tests"]


def link_tests(pieces: Pieces, job_data: Sequence[JobData], classes: Sequence[GpuClass]) -> Iterator[LinkPacking]:
    """One test for servers, one for racks and so on, as far as no link leaves two of them."""
    for partition in server_partitions(pieces.cluster):
        if not partition.shared:
            yield LinkPacking(pieces, job_data, classes, partition)


class LinkPacking:
    """Whether the links that leave groups of servers can carry all jobs that need several groups.

    Parameters
    ----------
    pieces, job_data, classes
        The instance, cut, and what is known of its jobs and GPUs.
    partition
        Groups of servers of which no two share a link.
    """

    def __init__(
        self, pieces: Pieces, job_data: Sequence[JobData], classes: Sequence[GpuClass], partition: ServerPartition
    ) -> None:
        self._finite = pieces.horizon == "finite"
        self._test = PackingTest()
        self._kinds = equivalent_groups(pieces, classes, partition)
        self._classes = equivalent_jobs(job_data)
        self.reason = f"jobs too wide for one place packed onto the links of {len(partition.leaving)} places"

    def refutes(self, limit: int, budget: Budget) -> bool:
        """Whether no plan has an objective of at most `limit`."""
        packing = self.packing(limit)
        return packing is None or self._test.refutes(packing, budget)

    def packing(self, limit: int) -> Packing | None:
        """What the links hold within an objective of `limit`; None where some job does not even find GPUs."""
        asked = []
        for each in self._classes:
            allowed = allowed_classes(each.data, limit)
            fewest = fewest_groups(self._kinds, each.data, allowed)
            if fewest is None:
                return None
            if fewest > 1:
                asked.append((each, allowed, fewest * each.number))
        bins = (self._bins(kind, [(each, allowed) for each, allowed, _ in asked], limit) for kind in self._kinds)
        return Packing(tuple(kind for kind in bins if kind.items), tuple(demand for *_, demand in asked))

    def _bins(
        self, kind: ServerGroup, asked: Sequence[tuple[EquivalentJobs, frozenset[int]]], limit: int
    ) -> KnapsackBins:
        width = len(kind.links)
        pieces = {
            c: Item(least_transfers(each.data, kind.links), each.number, width * self._head(kind, each.data, allowed))
            for c, (each, allowed) in enumerate(asked)
            if width and kind.room(each.data.job_class, allowed)
        }
        return KnapsackBins(kind.number, width * limit, pieces)

    def _head(self, kind: ServerGroup, data: JobData, allowed: frozenset[int]) -> int:
        """Least moment at which bucket 1 is ready, if a worker sits here; all workers contribute to it."""
        if not self._finite:
            return 0
        here = {k for s, k in kind.servers if k in allowed and s in data.job_class.gpus}
        anywhere = min(site.ready[0] for site in data.job_class.sites)
        return data.job.release_us + max(anywhere, min(data.job_class.blocks[k][0] for k in here))
