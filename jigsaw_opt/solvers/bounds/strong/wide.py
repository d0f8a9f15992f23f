"""What wide jobs ask of groups of servers, and groups that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.cluster import Channel, Link
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.facts import Facts, GpuClass, Shape
from jigsaw_opt.solvers.bounds.links import Grouping

__all__ = [
    "Group",
    "JobClass",
    "Nest",
    "alike_groups",
    "alike_jobs",
    "alike_nests",
    "allowed_classes",
    "fewest_groups",
    "least_transfers",
]


class Group(NamedTuple):
    """Groups that are alike: how many, a link profile, and their GPUs by server and class in one of them."""

    number: int
    links: tuple[Link, ...]
    servers: tuple[tuple[int, int], ...]

    def room(self, shape: Shape, allowed: frozenset[int]) -> int:
        """GPUs that may hold a worker, of allowed classes."""
        return sum(shape.gpus.get(s, 0) for s, k in self.servers if k in allowed)


class Nest(NamedTuple):
    """A group, how many are like it, and the smaller groups in one of them."""

    outer: Group
    inside: tuple[Group, ...]


class JobClass(NamedTuple):
    """Jobs that ask the same, one of them, and how many there are."""

    fact: Facts
    number: int


def alike_groups(pieces: Pieces, classes: Sequence[GpuClass], grouping: Grouping) -> list[Group]:
    """Groups of servers, like ones together."""
    return list(_alike(pieces, classes, grouping, range(len(pieces.cluster.servers))).values())


def alike_nests(pieces: Pieces, classes: Sequence[GpuClass], outer: Grouping, inner: Grouping) -> list[Nest]:
    """Groups of an outer grouping with the groups of an inner one in them, like ones together."""
    within: dict[int, list[int]] = {}
    for s, group in enumerate(outer.group):
        within.setdefault(group, []).append(s)
    alike: dict[tuple[object, ...], Nest] = {}
    for servers in within.values():
        ((key, whole),) = _alike(pieces, classes, outer, servers).items()
        inside = _alike(pieces, classes, inner, servers)
        full = key, frozenset((kind, one.number) for kind, one in inside.items())
        known = alike.get(full, Nest(whole._replace(number=0), tuple(inside.values())))
        alike[full] = Nest(known.outer._replace(number=known.outer.number + 1), known.inside)
    return list(alike.values())


def _alike(
    pieces: Pieces, classes: Sequence[GpuClass], grouping: Grouping, among: Iterable[int]
) -> dict[tuple[object, ...], Group]:
    number = {(kind.gpu_type, kind.memory): k for k, kind in enumerate(classes)}
    groups: dict[int, list[tuple[int, int]]] = {}
    for s in among:
        server = pieces.cluster.servers[s]
        groups.setdefault(grouping.group[s], []).append((s, number[server.gpu_type, server.gpu_memory]))
    alike: dict[tuple[object, ...], Group] = {}
    for group, servers in groups.items():
        links = tuple(pieces.cluster.links[k] for k in sorted(grouping.leaving[group]))
        gpus = Counter((k, pieces.cluster.servers[s].gpus) for s, k in servers)
        rates = Counter((link.bandwidth, link.latency_us) for link in links)
        part = pieces.routes.component[servers[0][0]]
        key = (part, frozenset(gpus.items()), frozenset(rates.items()))
        known = alike.get(key, Group(0, links, tuple(servers)))
        alike[key] = known._replace(number=known.number + 1)
    return alike


def alike_jobs(facts: Sequence[Facts]) -> list[JobClass]:
    """Jobs of one shape with the same iterations, levels and release are one class."""
    alike: dict[tuple[object, ...], JobClass] = {}
    for fact in facts:
        job = fact.job
        if fact.shape.ring is not None and fact.shape.blocks and fact.shape.sites:
            key = (id(fact.shape), job.iterations, job.rule.min_total, job.release_us)
            known = alike.get(key, JobClass(fact, 0))
            alike[key] = known._replace(number=known.number + 1)
    return list(alike.values())


def allowed_classes(fact: Facts, limit: int) -> frozenset[int]:
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


def fewest_groups(kinds: Sequence[Group], fact: Facts, allowed: frozenset[int]) -> int | None:
    """Least number of groups that have room for all workers of a job, None if all together have not."""
    rooms = sorted(((kind.room(fact.shape, allowed), kind.number) for kind in kinds), reverse=True)
    left, fewest = fact.job.slots, 0
    for room, count in rooms:
        if room and room * count >= left:
            return fewest + -(-left // room)
        left, fewest = left - room * count, fewest + count
    return None


def least_transfers(fact: Facts, links: Sequence[Link]) -> int:
    """Least time that one of the links is busy with all transfers of a job."""
    ring = fact.shape.ring
    assert ring is not None, "only jobs that have a ring are asked"
    rate = min(ring.rate, max(link.bandwidth for link in links))
    latency = max(ring.latency_us, min(link.latency_us for link in links))
    return critical.least_transfer_us(fact.job, fact.shape.exchange_over(fact.job, Channel((), rate, latency)))
