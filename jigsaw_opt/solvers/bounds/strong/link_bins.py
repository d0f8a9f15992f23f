"""Servers, or racks, as bins: their links must carry every job that needs several of them.

A job that no single group of servers has room for uses a link that leaves each group it touches, for all its
transfers. Within the objective at hand a slow GPU may be too slow for the job: then only the others are room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.facts import Facts, GpuClass, Shape
from jigsaw_opt.solvers.bounds.links import Grouping, groupings
from jigsaw_opt.solvers.bounds.strong.budget import Budget
from jigsaw_opt.solvers.bounds.strong.patterns import Bins, Packing, Piece, Refuter

__all__ = ["LinkBins", "link_questions"]


def link_questions(pieces: Pieces, facts: Sequence[Facts], classes: Sequence[GpuClass]) -> Iterator[LinkBins]:
    """One question for servers, one for racks and so on, as far as no link leaves two of them."""
    for grouping in groupings(pieces.cluster):
        if not grouping.shared:
            yield LinkBins(pieces, facts, classes, grouping)


class _Kind(NamedTuple):
    """Groups that are alike: how many, a link profile, and their GPUs by server and class in one of them."""

    number: int
    links: tuple[Link, ...]
    servers: tuple[tuple[int, int], ...]

    def room(self, shape: Shape, allowed: frozenset[int]) -> int:
        """GPUs that may hold a worker, of allowed classes."""
        return sum(shape.gpus.get(s, 0) for s, k in self.servers if k in allowed)


class _Class(NamedTuple):
    """Jobs that ask the same, one of them, and how many there are."""

    fact: Facts
    number: int


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
        self._kinds = _kinds(pieces, classes, grouping)
        self._classes = _classes(facts)
        self.reason = f"jobs too wide for one place packed onto the links of {len(grouping.leaving)} places"

    def refutes(self, limit: int, budget: Budget) -> bool:
        """Whether no plan has an objective of at most `limit`."""
        packing = self.packing(limit)
        return packing is None or self._refuter.refutes(packing, budget)

    def packing(self, limit: int) -> Packing | None:
        """What the links hold within an objective of `limit`; None where some job does not even find GPUs."""
        asked = []
        for each in self._classes:
            allowed = _allowed(each.fact, limit)
            fewest = _fewest(self._kinds, each.fact, allowed)
            if fewest is None:
                return None
            if fewest > 1:
                asked.append((each, allowed, fewest * each.number))
        bins = (self._bins(kind, [(each, allowed) for each, allowed, _ in asked], limit) for kind in self._kinds)
        return Packing(tuple(kind for kind in bins if kind.pieces), tuple(demand for *_, demand in asked))

    def _bins(self, kind: _Kind, asked: Sequence[tuple[_Class, frozenset[int]]], limit: int) -> Bins:
        width = len(kind.links)
        pieces = {
            c: Piece(_transfers(each.fact, kind.links), each.number, width * self._head(kind, each.fact, allowed))
            for c, (each, allowed) in enumerate(asked)
            if width and kind.room(each.fact.shape, allowed)
        }
        return Bins(kind.number, width * limit, pieces)

    def _head(self, kind: _Kind, fact: Facts, allowed: frozenset[int]) -> int:
        """Least moment at which bucket 1 is ready, if a worker sits here; all workers contribute to it."""
        if not self._finite:
            return 0
        here = {k for s, k in kind.servers if k in allowed and s in fact.shape.gpus}
        anywhere = min(site.ready[0] for site in fact.shape.sites)
        return fact.job.release_us + max(anywhere, min(fact.shape.blocks[k][0] for k in here))


def _kinds(pieces: Pieces, classes: Sequence[GpuClass], grouping: Grouping) -> list[_Kind]:
    number = {(kind.gpu_type, kind.memory): k for k, kind in enumerate(classes)}
    groups: dict[int, list[tuple[int, int]]] = {}
    for s, server in enumerate(pieces.cluster.servers):
        groups.setdefault(grouping.group[s], []).append((s, number[server.gpu_type, server.gpu_memory]))
    alike: dict[tuple[object, ...], _Kind] = {}
    for group, servers in groups.items():
        links = tuple(pieces.cluster.links[k] for k in sorted(grouping.leaving[group]))
        gpus = Counter((k, pieces.cluster.servers[s].gpus) for s, k in servers)
        rates = Counter((link.bandwidth, link.latency_us) for link in links)
        part = pieces.routes.component[servers[0][0]]
        key = (part, frozenset(gpus.items()), frozenset(rates.items()))
        known = alike.get(key, _Kind(0, links, tuple(servers)))
        alike[key] = known._replace(number=known.number + 1)
    return list(alike.values())


def _classes(facts: Sequence[Facts]) -> list[_Class]:
    """Jobs of one shape with the same iterations, levels and release are one class."""
    alike: dict[tuple[object, ...], _Class] = {}
    for fact in facts:
        job = fact.job
        if fact.shape.ring is not None and fact.shape.blocks and fact.shape.sites:
            key = (id(fact.shape), job.iterations, job.rule.min_total, job.release_us)
            known = alike.get(key, _Class(fact, 0))
            alike[key] = known._replace(number=known.number + 1)
    return list(alike.values())


def _allowed(fact: Facts, limit: int) -> frozenset[int]:
    """Classes of GPUs on which a worker does not delay the job beyond `limit`.

    A worker stays on its GPU, so in every iteration it makes its buckets ready there.
    """
    job, shape = fact.job, fact.shape
    lowest = critical.candidate_levels(job)[0]
    spans = {
        k: job.iterations * min(critical.tail_us(times, site.exchange.shortest, lowest) for site in shape.sites)
        for k, times in shape.blocks.items()
    }
    return frozenset(k for k, span in spans.items() if job.release_us + span <= limit)


def _fewest(kinds: Sequence[_Kind], fact: Facts, allowed: frozenset[int]) -> int | None:
    """Least number of groups that have room for all workers of a job, None if all together have not."""
    rooms = sorted(((kind.room(fact.shape, allowed), kind.number) for kind in kinds), reverse=True)
    left, fewest = fact.job.slots, 0
    for room, count in rooms:
        if room and room * count >= left:
            return fewest + -(-left // room)
        left, fewest = left - room * count, fewest + count
    return None


def _transfers(fact: Facts, links: Sequence[Link]) -> int:
    """Least time that one of the links is busy with all transfers of a job."""
    ring = fact.shape.ring
    assert ring is not None, "only jobs that have a ring are asked"
    rate = min(ring.rate, max(link.bandwidth for link in links))
    latency = max(ring.latency_us, min(link.latency_us for link in links))
    return critical.least_transfer_us(fact.job, fact.shape.exchange_over(fact.job, Channel((), rate, latency)))
