"""Links as a resource, for jobs that no server alone, or no rack alone, has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jigsaw_opt.problem import critical
from jigsaw_opt.problem.clock import looking
from jigsaw_opt.problem.cluster import Channel, Cluster, Link, joined_parts
from jigsaw_opt.problem.pieces import Pieces
from jigsaw_opt.solvers.bounds.demand import Demand, Resource, Run
from jigsaw_opt.solvers.bounds.facts import Facts

__all__ = ["Grouping", "groupings", "link_resources"]

_MOST_CUTS = 32
"""In a cluster of more links, single links are not tried."""


def link_resources(pieces: Pieces, facts: Sequence[Facts]) -> Iterator[Resource]:
    """Links that leave servers, racks and so on, and each link without which some job finds no room."""
    links = pieces.cluster.links
    if not any(fact.shape.crosses and fact.shape.ring for fact in facts):
        return
    for grouping in groupings(pieces.cluster):
        yield from _boundaries(pieces.cluster, facts, grouping)
    for cut in links if len(links) <= _MOST_CUTS else ():
        part = joined_parts(pieces.cluster, (link for link in links if link is not cut))
        group = tuple(part[server.name] for server in pieces.cluster.servers)
        demands = [_demand(fact, [cut], int(_fewest(fact, group) > 1)) for fact in looking(facts)]
        yield Resource(1, demands, f"transfers over link {cut.name}", True)


class Grouping(NamedTuple):
    """Servers put together: the group of each server, and the links that leave each group."""

    group: tuple[int, ...]
    leaving: dict[int, frozenset[int]]

    @property
    def shared(self) -> bool:
        """Whether some link leaves two groups."""
        return sum(map(len, self.leaving.values())) > len(frozenset().union(*self.leaving.values()))


def groupings(cluster: Cluster) -> Iterator[Grouping]:
    """Single servers, then servers that the links at hand join, as behind one switch, and so on."""
    inside: list[Link] = []
    while True:
        part = joined_parts(cluster, inside)
        group = tuple(part[server.name] for server in cluster.servers)
        leaving = _leaving(cluster, part, set(group))
        if not any(leaving.values()):
            return
        yield Grouping(group, leaving)
        inside += [cluster.links[k] for k in frozenset().union(*leaving.values())]


def _leaving(cluster: Cluster, part: dict[str, int], groups: set[int]) -> dict[int, frozenset[int]]:
    leaving: dict[int, set[int]] = {group: set() for group in groups}
    for k, link in enumerate(looking(cluster.links)):
        first, second = (part[end] for end in link.ends)
        for group in {first, second} & groups if first != second else ():
            leaving[group].add(k)
    return {group: frozenset(links) for group, links in leaving.items()}


def _boundaries(cluster: Cluster, facts: Sequence[Facts], grouping: Grouping) -> Iterator[Resource]:
    """Jobs that need several groups use a link of each; where groups share links, one less in all."""
    shapes, shared = {id(fact.shape): fact for fact in facts}, grouping.shared
    groups = {key: frozenset(grouping.group[s] for s in fact.shape.gpus) for key, fact in shapes.items()}
    needed = {key: _fewest(fact, grouping.group) - shared for key, fact in looking(shapes.items())}
    for reach in dict.fromkeys(groups[id(fact.shape)] for fact in facts if needed[id(fact.shape)] > 0):
        links = [cluster.links[k] for k in sorted(frozenset().union(*(grouping.leaving[g] for g in reach)))]
        uses = [needed[id(fact.shape)] if groups[id(fact.shape)] <= reach else 0 for fact in facts]
        demands = [_demand(fact, links, count) for fact, count in looking(zip(facts, uses, strict=True))]
        reason = f"transfers of jobs too wide for one place over {len(links)} links"
        yield Resource(len(links), demands, reason, True)


def _fewest(fact: Facts, group: Sequence[int]) -> int:
    """Least number of groups that have room for all workers of a job; 0 where one is enough."""
    room: Counter[int] = Counter()
    for s, gpus in fact.shape.gpus.items():
        room[group[s]] += gpus
    left, count = fact.job.slots, 0
    for gpus in sorted(room.values(), reverse=True):
        left, count = left - gpus, count + 1
        if left <= 0:
            break
    return count if count > 1 else 0


def _demand(fact: Facts, links: Sequence[Link], uses: int) -> Demand | None:
    """Demand of a job that uses some number of the links, whichever they are."""
    shape = fact.shape
    if uses < 1 or shape.ring is None or not shape.blocks:
        return None
    rate = min(shape.ring.rate, max(link.bandwidth for link in links))
    latency = max(shape.ring.latency_us, min(link.latency_us for link in links))
    channel = Channel((), rate, latency)
    exchange = shape.exchange_over(fact.job, channel)
    once, first = sum(exchange.shortest), min(times[0] for times in shape.blocks.values())
    longest = sum(fact.job.transfer_us(piece.bucket, fact.job.slots, channel) for piece in fact.job.transfers)
    # One transfer after the other up to the barrier: their middle is at least half of their sum before it.
    return Demand(
        head=fact.job.release_us + first,
        work=critical.least_transfer_us(fact.job, exchange) * uses,
        tail=0,
        lag=uses * fact.lag(once, once * once),
        runs=tuple(_runs(shape.blocks, exchange.shortest, uses)),
        spare=Run(uses, max(0, longest - once), first, 0),
    )


def _runs(blocks: Mapping[int, Sequence[int]], transfers: Sequence[int], uses: int) -> Iterator[Run]:
    """The transfers of an iteration, one after the other, each once its bucket can be ready."""
    before, after = 0, sum(transfers)
    for bucket, length in enumerate(transfers):
        before = max(before, min(times[bucket] for times in blocks.values() if len(times) > bucket))
        after -= length
        yield Run(uses, length, before, after)
        before += length
