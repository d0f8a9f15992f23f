"""Facts of task-graph jobs, some of whose slots may have servers: durations, chains, heads and tails."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from fractions import Fraction
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

from .common import Document, need, up
from .routes import channel, routes

Slot = tuple[str, str]
"""Names of a job and of its slot."""


def slots_of(operation: Document) -> list[str]:
    """Return the slots of a block, or those that a transfer is between or among."""
    if "from" in operation:
        return [operation["from"], operation["to"]]
    one = [operation["slot"]] if "slot" in operation else []
    return operation.get("slots") or operation.get("among") or one


def transfer_us(transfer: Document, rate: int, latency: int) -> int:
    """Return the duration of a transfer (specification: durations-of-task-graph-operations)."""
    if "from" in transfer:
        return up(Fraction(transfer["bytes"] * 10**6, rate)) + latency
    w = len(transfer["among"])
    return up(Fraction(2 * (w - 1) * transfer["bytes"] * 10**6, w * rate)) + 2 * (w - 1) * latency


class Graph:
    """A task-graph job."""

    def __init__(self, instance: Document, job: Document) -> None:
        self.job, self.shape, self.cluster = job, job["shape"], instance["cluster"]
        self.cyclic = instance["horizon"] == "cyclic"
        self.slots = {slot["name"]: slot for slot in self.shape["slots"]}
        self.blocks = {block["name"]: block for block in self.shape["blocks"]}
        self.operations = self.blocks | {transfer["name"]: transfer for transfer in self.shape["transfers"]}
        self.blocks_of = {
            slot: {name for name, block in self.blocks.items() if slot in slots_of(block)} for slot in self.slots
        }
        self.types = {
            slot: set.intersection(*(set(self.blocks[name]["duration_us"]) for name in names))
            for slot, names in self.blocks_of.items()
        }
        self.before: dict[str, list[str]] = {name: [] for name in self.operations}
        self.behind: dict[str, list[str]] = {name: [] for name in self.operations}
        for before, after, lag in self.shape["edges"]:
            if lag == 0:
                self.before[after].append(before)
                self.behind[before].append(after)
        self.order = list(TopologicalSorter(self.before).static_order())
        self.reached = cache(self._reached)
        self.route = routes(self.cluster, job)
        self.least = {name: self._least(operation) for name, operation in self.operations.items()}

    def _least(self, operation: Document) -> int:
        if "duration_us" in operation:
            return int(min(operation["duration_us"].values()))
        links = [(link["bandwidth"], link["latency_us"]) for link in self.cluster["links"]]
        fabrics = [server for server in self.cluster["servers"] if server["gpus"] > 1]
        links += [(server["fabric_bandwidth"], server["fabric_latency_us"]) for server in fabrics]
        if not links:
            return 0
        return transfer_us(operation, max(rate for rate, _ in links), min(latency for _, latency in links))

    def _reached(self, name: str) -> set[str]:
        """Return the operations that chains lead to from one."""
        chains = _right_before(self.order, self.before, dict.fromkeys(self.operations, 1), {name})
        return {other for other, length in chains.items() if length}

    def may_be_on(self, slot: str, server: Document, others: Collection[str]) -> bool:
        """Return whether a slot may be on a server where other slots of the job have these servers."""
        name = server["name"]
        return (
            server["gpu_type"] in self.types[slot]
            and self.slots[slot]["memory"] <= server["gpu_memory"]
            and list(others).count(name) < server["gpus"]
            and all(other == name or self.route(other, name) is not None for other in others)
        )


class Placed:
    """A task-graph job of which some slots have a server."""

    def __init__(self, graph: Graph, server_of: dict[str, str]) -> None:
        self.graph, self.server_of = graph, server_of
        self.duration, self.links = dict(graph.least), dict.fromkeys(graph.operations, frozenset[str]())
        types = {server["name"]: server["gpu_type"] for server in graph.cluster["servers"]}
        for name, operation in graph.operations.items():
            slots = slots_of(operation)
            servers = [server_of[slot] for slot in slots if slot in server_of]
            if name in graph.blocks and servers:
                self.duration[name] = max(operation["duration_us"][types[server]] for server in servers)
            elif name not in graph.blocks and len(servers) == len(slots):
                counts = {server: servers.count(server) for server in servers}
                self.links[name], rate, latency = channel(graph.cluster, counts, graph.route)
                self.duration[name] = transfer_us(operation, rate, latency)
        self.in_chains = self.duration if server_of.keys() == graph.slots.keys() else graph.least
        everything, release = graph.operations.keys(), graph.job["release_us"]
        self.head = {name: release + length for name, length in self.before(everything).items()}
        self.tail = self.behind(everything)
        if graph.cyclic:
            self.head = self.tail = dict.fromkeys(everything, 0)

    def before(self, first: Collection[str]) -> dict[str, int]:
        """Return the length of the longest chain from one of the first operations to right before each, 0 for none."""
        return _right_before(self.graph.order, self.graph.before, self.in_chains, first)

    def behind(self, last: Collection[str]) -> dict[str, int]:
        """Return the length of the longest chain from right behind each operation to one of the last, 0 for none."""
        return _right_before(self.graph.order[::-1], self.graph.behind, self.in_chains, last)


def _right_before(
    order: list[str], neighbours: dict[str, list[str]], duration: dict[str, int], first: Collection[str]
) -> dict[str, int]:
    longest: dict[str, int] = {}  # with the operation itself, where a chain leads to it
    right_before = {}
    for name in order:
        chains = [longest[other] for other in neighbours[name] if other in longest]
        right_before[name] = max(chains, default=0)
        if chains or name in first:
            longest[name] = right_before[name] + duration[name]
    return right_before


def components_alike(graph: Graph) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each component of operations and the next one that is alike."""
    alike: defaultdict[str, list[list[str]]] = defaultdict(list)
    for sort, component in zip(*_components(graph)):
        alike[sort].append(component)
    for components in alike.values():
        yield from pairwise(components)


def _components(graph: Graph) -> tuple[list[str], list[list[str]]]:
    """Return what must be equal for components to be alike, and the components, each in the order of operations."""
    edges, holds = graph.shape["edges"], graph.shape["holds"]
    joined = {name: [name] for name in graph.operations}
    for one, other in [*((before, after) for before, after, _ in edges), *((x["from"], x["to"]) for x in holds)]:
        if joined[one] is not joined[other]:
            both = joined[one] + joined[other]
            joined.update(dict.fromkeys(both, both))
    components: defaultdict[int, list[str]] = defaultdict(list)
    for name in graph.operations:
        components[id(joined[name])].append(name)
    place = {name: k for component in components.values() for k, name in enumerate(component)}
    parts: defaultdict[int, list[list[Any]]] = defaultdict(list)
    for before, after, lag in edges:
        if before != after or lag != 1:
            parts[id(joined[before])].append(["edge", place[before], place[after], lag])
    for x in holds:
        held = ["holds", place[x["from"]], place[x["to"]], x["bytes"], x.get("slot", "")]
        parts[id(joined[x["from"]])].append(held)
    sorts = []
    for number, component in components.items():
        operations = [{"power_w": {}, **graph.operations[name], "name": ""} for name in component]
        sorts.append(json.dumps([operations, sorted(parts[number])], sort_keys=True))
    return sorts, list(components.values())


def interval_us(graph: Graph, interval: Document) -> int:
    """Return the longest chain of least durations over a memory interval, 0 where no chain leads there."""
    first, last = interval["from"], interval["to"]
    if first == last:
        return graph.least[first]
    chain = _right_before(graph.order, graph.before, graph.least, {first})[last]
    return chain + graph.least[last] if chain else 0


def slot_named(graphs: dict[str, Any], value: object) -> Slot:
    """Return the slot that a pair of names means."""
    need(type(value) is list and len(value) == 2 and all(type(name) is str for name in value), "a slot is no pair")
    job, slot = value  # type: ignore[misc]
    need(job in graphs and slot in graphs[job].slots, f"there is no slot {slot} of job {job}")
    return job, slot
