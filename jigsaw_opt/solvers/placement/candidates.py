"""Where a job might go: a few sets of GPUs that are worth trying."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import Layout
from jigsaw_opt.solvers.placement.state import PartialPlacement

T = TypeVar("T")

_SAMPLE = 16
"""Servers or blocks of which the least loaded are found: on large clusters a step may not look at all of them."""


def by_type(layout: Layout, servers: Iterable[int]) -> list[int]:
    """Return servers by type, the most frequent type first, so that buddy-allocated blocks are of one type."""
    known = {server: layout.servers[server].gpu_type for server in servers}
    count = Counter(known.values())
    return sorted(known, key=lambda server: (-count[known[server]], known[server]))


class CandidateGenerator:
    """Proposes GPUs for jobs, by loads."""

    def __init__(self, data: ProblemData, rng: random.Random) -> None:
        self.data, self.rng, self.params = data, rng, data.params.candidates
        self.layout = data.layout
        graph = self.layout.routes.graph
        self._links_at: list[list[int]] = [
            [data["link"] for _, _, data in graph.edges(server.name, data=True)] for server in self.layout.servers
        ]
        self._blur = self.params.blur
        self._kinds: dict[int, list[list[int]]] = {}
        self._buddy_blocks: dict[tuple[int, str | None, tuple[int, ...]], list[tuple[int, ...]]] = {}

    def of(self, placement: PartialPlacement, index: int, thorough: bool = False) -> Iterator[list[int]]:
        """Yield sets of GPUs for a job, each in the order of its slots; memory admits each of them.

        The servers are those of one type and of all types together, or with `thorough` of each type in turn. A job too
        wide for a server takes servers near one another, the least used ones first. A job that is held has its own.
        """
        if index in self.layout.held:
            yield [*self.layout.held[index]]
            return
        self._blur = 0.0 if thorough else self.params.blur
        seen: set[tuple[int, ...]] = set()
        kinds = self._by_kind(index)
        for servers in kinds if thorough or len(kinds) < 3 else (self.rng.choice(kinds[:-1]), kinds[-1]):
            for gpus in self._among(placement, index, servers, thorough):
                if gpus is not None and (key := tuple(sorted(gpus))) not in seen:
                    seen.add(key)
                    yield gpus

    def chosen(self, placement: PartialPlacement, index: int, gpus: Sequence[int]) -> list[int] | None:
        """Return the first GPUs with memory for the levels that a job needs, None where there are too few."""
        chosen: list[int] = []
        skipped: list[tuple[int, int]] = []
        coming = iter(gpus)
        for level in placement.demands[index].need:
            at = next((at for at, (_, cap) in enumerate(skipped) if cap >= level), None)
            if at is not None:
                chosen.append(skipped.pop(at)[0])
                continue
            for gpu in coming:
                cap = placement.cap(index, gpu)
                if cap >= level:
                    chosen.append(gpu)
                    break
                if cap:
                    skipped.append((gpu, cap))
            else:
                return None
        return chosen

    def use(self, placement: PartialPlacement, server: int) -> int:
        """Return the load of the fullest link at a server, or the mean load of its GPUs if that is more."""
        inside = self.layout.on_server[server]
        load = sum([placement.gpu_us[gpu] for gpu in inside]) // len(inside)
        return max([load, *[placement.link_us[link] for link in self._links_at[server]]])

    def _by_kind(self, index: int) -> list[list[int]]:
        """Return the servers that may hold workers of a job: by type, and all of them where there are several types."""
        demand = self.data.demands[index]
        if id(demand) not in self._kinds:
            kinds: dict[str, list[int]] = {}
            for s, server in enumerate(self.layout.servers):
                if server.gpu_type in demand.slot_us:
                    kinds.setdefault(server.gpu_type, []).append(s)
            found = list(kinds.values())
            together = sorted(s for servers in found for s in servers)
            self._kinds[id(demand)] = found if len(found) == 1 else [*found, together]
        return self._kinds[id(demand)]

    def _among(
        self, placement: PartialPlacement, index: int, servers: Sequence[int], thorough: bool
    ) -> Iterator[list[int] | None]:
        slots, inside = self.data.operations.jobs[index].slots, self.layout.on_server
        sample = servers if len(servers) <= _SAMPLE else self.rng.sample(servers, _SAMPLE)
        alone = [s for s in (servers if thorough else sample) if len(inside[s]) >= slots]
        if alone:
            for server in self._least(alone, lambda s: sorted([placement.gpu_us[g] for g in inside[s]])[slots - 1]):
                yield self.chosen(placement, index, self._sorted(placement, inside[server]))
        if slots > 1 and len(servers) > 1 and (not alone or self.rng.random() < 0.2):
            blocks = self._blocks(index, servers)
            for block in self._least(blocks, lambda block: max([self.use(placement, s) for s in block])):
                gpus = [gpu for s in block for gpu in self._sorted(placement, inside[s])]
                yield self.chosen(placement, index, gpus)
            if self.rng.random() < 0.3:
                usable = set(servers)
                anchor = min(self.rng.sample(sample, min(4, len(sample))), key=lambda s: self.use(placement, s))
                yield self._around(placement, index, usable, anchor)
            if thorough and len(servers) <= _SAMPLE:
                yield self._anywhere(placement, index, servers)

    def blocks(self, index: int) -> Iterator[tuple[int, ...]]:
        """Yield every server that may hold all workers of a job, or else buddy-allocated blocks of as many as it needs.

        The servers are those of one type and of all types together; blocks come in the order in which each
        neighbourhood lists them.
        """
        job, inside = self.data.operations.jobs[index], self.layout.on_server
        seen: set[tuple[int, ...]] = set()
        for servers in self._by_kind(index):
            alone = [(s,) for s in servers if len(inside[s]) >= job.slots]
            for block in alone or self._all_buddy_blocks(job, servers):
                if block not in seen:
                    seen.add(block)
                    yield block

    def _blocks(self, index: int, servers: Sequence[int]) -> Sequence[tuple[int, ...]]:
        """Return some buddy-allocated blocks."""
        blocks = self._all_buddy_blocks(self.data.operations.jobs[index], servers)
        return blocks if len(blocks) <= _SAMPLE else self.rng.sample(blocks, _SAMPLE)

    def _all_buddy_blocks(self, job: OperationGraph, servers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return all buddy-allocated blocks for a job.

        Blocks of jobs of different widths lie inside one another or apart, so few jobs are in the way of each other.
        Under a route policy there may be none, though other sets of servers are joined; then these are taken.
        """
        key = (job.slots, job.route_policy, tuple(servers))
        if key not in self._buddy_blocks:
            blocks = list(self._buddy_allocated(job, servers))
            self._buddy_blocks[key] = blocks or list(self._blocks_around(job, servers))
        return self._buddy_blocks[key]

    def _buddy_allocated(self, job: OperationGraph, servers: Sequence[int]) -> Iterator[tuple[int, ...]]:
        slots, routes = job.slots, self.layout.routes.under(job.route_policy)
        left = dict.fromkeys(servers)
        while left:
            first = next(iter(left))
            near = by_type(self.layout, self._neighbourhood(job, servers, first))
            block: list[int] = []
            room = 0
            for server in [s for s in near if s in left]:
                if not routes.joins(server, block):
                    continue
                block.append(server)
                room += len(self.layout.on_server[server])
                if room >= slots:
                    yield tuple(block)
                    for s in block:
                        del left[s]
                    block, room = [], 0
                    if len(near) == len(servers):
                        break
            else:
                for s in block or [first]:
                    left.pop(s, None)

    def _blocks_around(self, job: OperationGraph, servers: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield, around each server, the nearest ones that are joined to one another and have room for a job."""
        usable, routes = set(servers), self.layout.routes.under(job.route_policy)
        for first in servers:
            near = (s for ring in self.layout.near(first, job.route_policy) for s in ring if s in usable)
            block: list[int] = []
            room = 0
            for server in routes.mutual(near):
                block.append(server)
                room += len(self.layout.on_server[server])
                if room >= job.slots:
                    yield tuple(sorted(block))
                    break

    def _neighbourhood(self, job: OperationGraph, servers: Sequence[int], first: int) -> list[int]:
        """Return the servers nearest to one of them that together have room for a job: its rack, or beyond."""
        usable, found, room = set(servers), [], 0
        for number, ring in enumerate(self.layout.near(first, job.route_policy)):
            inside = [s for s in ring if s in usable]
            found += inside
            room += sum(len(self.layout.on_server[s]) for s in inside)
            if room >= job.slots and number > 0:
                break
        return found

    def _least(self, servers: Sequence[T], key: Callable[[T], int]) -> list[T]:
        """Return the servers of the smallest keys, and one of the others."""
        ranked = sorted(servers, key=key)
        chosen = ranked[: self.params.best]
        if len(ranked) > self.params.best:
            chosen.append(self.rng.choice(ranked[self.params.best :]))
        return chosen

    def _around(self, placement: PartialPlacement, index: int, usable: set[int], anchor: int) -> list[int] | None:
        """Return GPUs of a server and, where these do not suffice, of those nearest to it.

        Of servers that are as near, the least used one comes first.
        """
        return self.layout.around(
            anchor,
            self.data.operations.jobs[index],
            lambda ring: self._blurred([s for s in ring if s in usable], lambda s: self.use(placement, s)),
            lambda server: self._sorted(placement, self.layout.on_server[server]),
            lambda gpus: self.chosen(placement, index, gpus),
        )

    def _anywhere(self, placement: PartialPlacement, index: int, servers: Sequence[int]) -> list[int] | None:
        """Return the least loaded GPUs of servers that are joined to one of them, and to one another."""
        job = self.data.operations.jobs[index]
        routes, source = self.layout.routes.under(job.route_policy), self.rng.choice(servers)
        gpus = [g for s in servers if routes.joined(source, s) for g in self.layout.on_server[s]]
        ranked = self._sorted(placement, gpus)
        return self.chosen(placement, index, self.layout.mutual(job, ranked) if routes.policy is not None else ranked)

    def _sorted(self, placement: PartialPlacement, gpus: Sequence[int]) -> list[int]:
        return self._blurred(gpus, placement.gpu_us.__getitem__)

    def _blurred(self, items: Sequence[int], key: Callable[[int], int]) -> list[int]:
        """Return items by key, in half of all cases blurred by chance."""
        rng, blur = self.rng.random, self._blur
        if not blur or rng() < 0.5:
            return sorted(items, key=key)
        return sorted(items, key=lambda item: key(item) * (1 + blur * rng()))
