"""Servers, or racks, as bins: their links must carry every job that needs several of them.

A job that no single group of servers has room for uses a link that leaves each group it touches, for all its
transfers. Within the objective at hand a slow GPU may be too slow for the job: then only the others are room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.facts import Facts, GpuClass
from jigsaw_opt.solvers.bounds.links import Grouping, groupings
from jigsaw_opt.solvers.bounds.strong.budget import Budget
from jigsaw_opt.solvers.bounds.strong.patterns import Bins, Packing, Piece, Refuter
from jigsaw_opt.solvers.bounds.strong.wide import (
    Group,
    JobClass,
    alike_groups,
    alike_jobs,
    allowed_classes,
    fewest_groups,
    least_transfers,
)

__all__ = ["LinkBins", "link_questions"]


def link_questions(pieces: Pieces, facts: Sequence[Facts], classes: Sequence[GpuClass]) -> Iterator[LinkBins]:
    """One question for servers, one for racks and so on, as far as no link leaves two of them."""
    for grouping in groupings(pieces.cluster):
        if not grouping.shared:
            yield LinkBins(pieces, facts, classes, grouping)


class LinkBins:
    """Whether the links that leave groups of servers can carry all jobs that need several groups.

    Parameters
    ----------
    pieces, facts, classes
        The instance, cut, and what is known of its jobs and GPUs.
    grouping
        Groups of servers of which no two share a link.
    """

    def __init__(self, pieces: Pieces, facts: Sequence[Facts], classes: Sequence[GpuClass], grouping: Grouping) -> None:
        self._finite = pieces.horizon == "finite"
        self._refuter = Refuter()
        self._kinds = alike_groups(pieces, classes, grouping)
        self._classes = alike_jobs(facts)
        self.reason = f"jobs too wide for one place packed onto the links of {len(grouping.leaving)} places"

    def refutes(self, limit: int, budget: Budget) -> bool:
        """Whether no plan has an objective of at most `limit`."""
        packing = self.packing(limit)
        return packing is None or self._refuter.refutes(packing, budget)

    def packing(self, limit: int) -> Packing | None:
        """What the links hold within an objective of `limit`; None where some job does not even find GPUs."""
        asked = []
        for each in self._classes:
            allowed = allowed_classes(each.fact, limit)
            fewest = fewest_groups(self._kinds, each.fact, allowed)
            if fewest is None:
                return None
            if fewest > 1:
                asked.append((each, allowed, fewest * each.number))
        bins = (self._bins(kind, [(each, allowed) for each, allowed, _ in asked], limit) for kind in self._kinds)
        return Packing(tuple(kind for kind in bins if kind.pieces), tuple(demand for *_, demand in asked))

    def _bins(self, kind: Group, asked: Sequence[tuple[JobClass, frozenset[int]]], limit: int) -> Bins:
        width = len(kind.links)
        pieces = {
            c: Piece(least_transfers(each.fact, kind.links), each.number, width * self._head(kind, each.fact, allowed))
            for c, (each, allowed) in enumerate(asked)
            if width and kind.room(each.fact.shape, allowed)
        }
        return Bins(kind.number, width * limit, pieces)

    def _head(self, kind: Group, fact: Facts, allowed: frozenset[int]) -> int:
        """Least moment at which bucket 1 is ready, if a worker sits here; all workers contribute to it."""
        if not self._finite:
            return 0
        here = {k for s, k in kind.servers if k in allowed and s in fact.shape.gpus}
        anywhere = min(site.ready[0] for site in fact.shape.sites)
        return fact.job.release_us + max(anywhere, min(fact.shape.blocks[k][0] for k in here))
