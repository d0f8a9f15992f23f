"""Facts of task-graph jobs, some of whose slots have a server: durations, links, longest chains (docs/proofs.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import combinations
from typing import Any, NamedTuple

from jigsaw_opt.checking.network import ExchangeTerms, RouteFinder
from jigsaw_opt.checking.terms import transfer_duration
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import MemoryInterval, TaskGraphJob, TaskGraphTransfer


class PlacedOperation(NamedTuple):
    """An operation all of whose slots have a server: its least duration there, and the numbers of its links."""

    operation: int
    duration_us: int
    links: Collection[int]


class TaskGraphFacts:
    """A task-graph job. Operations are numbered, blocks before transfers, both in the order of the task graph.

    `servers`: number of the server of each slot that has one, by name; whoever places slots writes it.
    """

    def __init__(self, instance: Instance, job: TaskGraphJob) -> None:
        shape, self.cluster = job.shape, instance.cluster
        self.job, self.iterations, self.release_us = job, job.iterations, job.release_us
        self.names = shape.operations
        self.number = {name: number for number, name in enumerate(self.names)}
        self.memory = {slot.name: slot.memory for slot in shape.slots}
        self.slots = [*(block.slots for block in shape.blocks), *map(_ends, shape.transfers)]
        self.blocks = range(len(shape.blocks))
        self.edges = {(self.number[e.before], self.number[e.after], e.lag) for e in shape.edges}
        self._before: list[list[int]] = [[] for _ in self.names]
        self._after: list[list[int]] = [[] for _ in self.names]
        for before, after, lag in self.edges:
            if lag == 0:
                self._before[after].append(before)
                self._after[before].append(after)
        self._order = tuple(TopologicalSorter(dict(enumerate(self._before))).static_order())
        self._routes = RouteFinder(instance.cluster, job.route_policy)
        self.servers: dict[str, int] = {}
        self._durations: dict[tuple[int, ...], list[int]] = {}
        self._chains: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
        self._least = [self._least_us(number) for number in range(len(self.names))]

    def blocks_of(self, slot: str) -> list[int]:
        """Return the blocks that a slot takes part in."""
        return [block for block in self.blocks if slot in self.slots[block]]

    def knows(self, slot: str, server: Server) -> bool:
        """Return whether each block that a slot takes part in has a duration on the GPUs of a server."""
        return all(server.gpu_type in self.job.shape.blocks[block].duration_us for block in self.blocks_of(slot))

    def intervals_of(self, slot: str) -> list[tuple[int, MemoryInterval]]:
        """Return the memory intervals of a slot that hold any bytes, with their numbers, from 1, in the task graph."""
        every = enumerate(self.job.shape.holds, 1)
        return [(v, i) for v, i in every if i.bytes and (i.slot or self.slots[self.number[i.start]][0]) == slot]

    def may_hold(self, slot: str, server: int) -> bool:
        """Return whether a slot may be on a server beside those of the job that have one."""
        own = self.cluster.servers[server]
        return (
            self.knows(slot, own)
            and self.memory[slot] <= own.gpu_memory
            and list(self.servers.values()).count(server) < own.gpus
            and all(self._routes.passage(server, other) is not None for other in {*self.servers.values()})
        )

    def placed(self, operation: int) -> PlacedOperation | None:
        """Return an operation where all of its slots have a server, None elsewhere."""
        servers = tuple(self.servers.get(slot, -1) for slot in self.slots[operation])
        if -1 in servers:
            return None
        terms = None if operation in self.blocks else self._transfer_terms(operation, servers)
        return PlacedOperation(operation, self.duration_us(operation), () if terms is None else terms.links)

    def duration_us(self, operation: int) -> int:
        """Return the least duration of an operation on the servers that its slots have, as far as they have one."""
        servers = tuple(self.servers[slot] for slot in self.slots[operation] if slot in self.servers)
        if operation in self.blocks:
            table = self.job.shape.blocks[operation].duration_us
            found = [table[self.cluster.servers[server].gpu_type] for server in servers]
            return max(found, default=self._least[operation])
        if len(servers) < len(self.slots[operation]):
            return self._least[operation]
        terms = self._transfer_terms(operation, servers)
        assert terms is not None, "a slot is placed only where routes lead to the others"
        return passage_us(self._transfer(operation), terms.rate, terms.latency_us)

    def durations_us(self) -> list[int]:
        """Return all durations: those where the slots are once every slot has a server, and the least ones before."""
        if not self._is_placed:
            return self._least
        key = self._key
        if key not in self._durations:
            self._durations[key] = [self.duration_us(operation) for operation in range(len(self.names))]
        return self._durations[key]

    def heads_and_tails(self) -> tuple[list[int], list[int]]:
        """Return, by operation, the longest chain of its iteration before it, and behind it, of `durations_us`."""
        key = self._key if self._is_placed else ()
        if key not in self._chains:
            self._chains[key] = self._longest(range(0), True), self._longest(range(0), False)
        return self._chains[key]

    def within(self, members: Collection[int]) -> tuple[list[int], list[int]]:
        """Return, by operation, the longest chain from a member's start to its start, and from its end to one's end.

        The value is negative where no chain leads from or to a member.
        """
        return self._longest(members, True), self._longest(members, False)

    def longest_from(self, start: int) -> dict[int, int]:
        """Return the longest chain of least durations from the start of an operation to the end of each behind it."""
        found = {start: self._least[start]}
        for operation in self._order:
            chains = [found[before] for before in self._before[operation] if before in found]
            if chains:
                found[operation] = max(chains) + self._least[operation]
        return found

    def are_joined(self, servers: Collection[int]) -> bool:
        """Return whether routes lead between any two of some servers."""
        return all(self._routes.passage(one, other) is not None for one, other in combinations(sorted(servers), 2))

    def components_alike(self) -> list[list[list[int]]]:
        """Return sets of components that may change places, each with its operations in order (docs/proofs.md)."""
        part = {x: [x] for x in range(len(self.names))}
        holds = [(self.number[i.start], self.number[i.end]) for i in self.job.shape.holds]
        for one, other in [*((before, after) for before, after, _ in self.edges), *holds]:
            if part[one] is not part[other]:
                joined = sorted(part[one] + part[other])
                part.update(dict.fromkeys(joined, joined))
        found: dict[object, list[list[int]]] = {}
        for x, members in part.items():
            if x == members[0]:
                found.setdefault(self._form(members), []).append(members)
        return list(found.values())

    def _form(self, members: Sequence[int]) -> object:
        """Return all of a component but the names of its operations."""
        shape, place = self.job.shape, {self.names[x]: k for k, x in enumerate(members)}
        blocks = [shape.blocks[x] for x in members if x in self.blocks]
        transfers = [self._transfer(x) for x in members if x not in self.blocks]
        edges = {(e.before, e.after, e.lag) for e in shape.edges if (e.before, e.lag) != (e.after, 1)}
        return (
            tuple((b.slots, *map(_entries, (b.duration_us, b.power_w))) for b in blocks),
            tuple((t.source, t.target, t.among, t.bytes) for t in transfers),
            frozenset((place[before], place[after], lag) for before, after, lag in edges if before in place),
            _entries(Counter((place[i.start], place[i.end], i.bytes, i.slot) for i in shape.holds if i.start in place)),
        )

    def keep_power_caps(self, servers: Mapping[str, int]) -> bool:
        """Return whether each block alone keeps each power cap where slots have these servers."""
        own = {slot: self.cluster.servers[s] for slot, s in servers.items()}
        return all(
            sum((block.power_w or {}).get(own[s].gpu_type, 0) for s in block.slots if own[s].name in cap.servers)
            <= cap.watts
            for cap in self.cluster.power_caps or ()
            for block in self.job.shape.blocks
        )

    def are_separated(self, one: int, other: int) -> bool:
        """Return whether the barrier keeps two operations of different iterations apart."""
        barrier = self.job.shape.barrier
        blocks = one in self.blocks and other in self.blocks
        shares = blocks and not {*self.slots[one]}.isdisjoint(self.slots[other])
        return barrier == "job" or (barrier == "slot" and shares)

    def waits(self, before: int, after: int, lag: int) -> bool:
        """Return whether one operation waits, so many iterations later, for another: by an edge or the barrier."""
        return (
            (before, after, lag) in self.edges
            or (lag == 1 and before == after)
            or (lag >= 1 and self.are_separated(before, after))
        )

    @property
    def _is_placed(self) -> bool:
        return len(self.servers) == len(self.job.shape.slots)

    @property
    def _key(self) -> tuple[int, ...]:
        return tuple(self.servers[slot.name] for slot in self.job.shape.slots)

    def _transfer(self, operation: int) -> TaskGraphTransfer:
        return self.job.shape.transfers[operation - len(self.blocks)]

    def _transfer_terms(self, operation: int, servers: tuple[int, ...]) -> ExchangeTerms | None:
        ring = bool(self._transfer(operation).among)
        return self._routes.exchange(servers) if ring else self._routes.passage(*servers)

    def _least_us(self, operation: int) -> int:
        """Return the least duration of an operation on any GPUs, at the best rate and the least latency there are."""
        if operation in self.blocks:
            return min(self.job.shape.blocks[operation].duration_us.values())
        ways = [(link.bandwidth, link.latency_us) for link in self.cluster.links]
        ways += [(s.fabric_bandwidth, s.fabric_latency_us) for s in self.cluster.servers if s.gpus > 1]
        if not ways:
            return 0
        rates, latencies = zip(*ways, strict=True)
        return passage_us(self._transfer(operation), max(rates), min(latencies))

    def _longest(self, members: Collection[int], forward: bool) -> list[int]:
        """Return the longest chains, from a member on where there are some, before or behind each operation."""
        lengths, inside = self.durations_us(), set(members)
        others = self._before if forward else self._after
        found = [0] * len(lengths)
        none = -sum(lengths) - 1 if inside else 0
        for operation in self._order if forward else reversed(self._order):
            least = 0 if operation in inside else none
            found[operation] = max([least, *(found[other] + lengths[other] for other in others[operation])])
        return found


def alike_servers(instance: Instance, policies: bool) -> Mapping[int, int]:
    """Return, for each server, the first one that it may change places with (docs/proofs.md, servers alike)."""
    cluster = instance.cluster
    ends: dict[str, list[tuple[str, int, int]]] = {name: [] for name in _nodes(instance)}
    for link in cluster.links:
        for one, other in (link.ends, link.ends[::-1]):
            ends[one].append((other, link.bandwidth, link.latency_us))
    first: dict[object, int] = {}
    found = {}
    tree = not policies and _is_forest(instance)
    for number, server in enumerate(cluster.servers):
        own = ends[server.name]
        kind = (server.gpu_type, server.gpus, server.gpu_memory, server.fabric_bandwidth, server.fabric_latency_us)
        found[number] = first.setdefault((kind, *own) if tree and len(own) <= 1 else number, number)
    return found


def _is_forest(instance: Instance) -> bool:
    """Return whether links close no circle."""
    part = {name: name for name in _nodes(instance)}
    for link in instance.cluster.links:
        one, other = (part[end] for end in link.ends)
        if one == other:
            return False
        part = {name: one if own == other else own for name, own in part.items()}
    return True


def _nodes(instance: Instance) -> Iterator[str]:
    yield from (server.name for server in instance.cluster.servers)
    yield from instance.cluster.switches


def _ends(transfer: TaskGraphTransfer) -> tuple[str, ...]:
    return transfer.among or (transfer.source or "", transfer.target or "")


def passage_us(transfer: TaskGraphTransfer, rate: int, latency_us: int) -> int:
    """Return the duration of a transfer over a channel (specification: durations-of-task-graph-operations)."""
    workers = len(transfer.among)
    if workers:
        return transfer_duration(transfer.bytes, workers, workers, rate, latency_us)
    return -(-transfer.bytes * 10**6 // rate) + latency_us


def _entries(table: Mapping[Any, int] | None) -> frozenset[tuple[Any, int]]:
    return frozenset((table or {}).items())


def _turned(waits_for: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    turned: dict[int, list[int]] = {number: [] for number in waits_for}
    for after, before in waits_for.items():
        for one in before:
            turned[one].append(after)
    return turned
