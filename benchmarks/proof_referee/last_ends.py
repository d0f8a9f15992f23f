"""Kinds of argument about the last end of task-graph jobs."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from .common import KINDS, Document, different, fields, need, parts, spend
from .task_graphs import Graph, Placed, interval_us, slot_named, slots_of

Jobs = dict[str, Placed]
ENDS: dict[str, tuple[dict[str, type], Callable[[Document, Jobs, Document], int]]] = {}
"""By kind, the types of its fields and what it proves of the last end of jobs whose slots may have servers."""


def _kind(name: str, **types: type) -> Callable[..., Callable[[Document, Jobs, Document], int]]:
    def add(function: Callable[[Document, Jobs, Document], int]) -> Callable[[Document, Jobs, Document], int]:
        def proves(instance: Document, argument: Document) -> int:
            weighted = instance["objective"] == "weighted_completion"
            need(not weighted or len(instance["jobs"]) == 1, f"{name} needs one job for weighted_completion")
            graphs = [Graph(instance, job) for job in instance["jobs"] if "shape" in job]
            value = function(instance, {graph.job["name"]: Placed(graph, {}) for graph in graphs}, argument)
            return value * (instance["jobs"][0]["weight"] if weighted else 1)

        ENDS[name] = ({"kind": str, **types}, function)
        KINDS[name] = ({"kind": str, **types}, proves)
        return function

    return add


@_kind("exclusive operations", resource=dict, head=int, tail=int)
def _exclusive_operations(instance: Document, jobs: Jobs, argument: Document) -> int:
    head, tail = argument["head"], argument["tail"]
    need(head >= 0 and tail >= 0, "head or tail is below 0")
    counted = [
        job.graph.job["iterations"] * job.duration[name]
        for job, name in _users(instance, jobs, argument["resource"])
        if job.head[name] >= head and job.tail[name] >= tail
    ]
    need(bool(counted), "no operation counts")
    return head + tail + sum(counted)


def _users(instance: Document, jobs: Jobs, resource: Document) -> list[tuple[Placed, str]]:
    cluster = instance["cluster"]
    if resource.keys() == {"slot"}:
        name, slot = slot_named({name: job.graph for name, job in jobs.items()}, resource["slot"])
        return [(jobs[name], block) for block in jobs[name].graph.blocks_of[slot]]
    if resource.keys() == {"server"}:
        different([resource["server"]], [one["name"] for one in cluster["servers"] if one["gpus"] == 1], "servers")
        return [
            (job, block)
            for job in jobs.values()
            for slot, server in job.server_of.items()
            if server == resource["server"]
            for block in job.graph.blocks_of[slot]
        ]
    need(resource.keys() == {"links"}, "resource is none of slot, server and links")
    different(resource["links"], [link["name"] for link in cluster["links"]], "links")
    need(len(resource["links"]) in (1, 3), "there are neither 1 nor 3 links")
    least = 1 if len(resource["links"]) == 1 else 2
    uses = ((job, name, links) for job in jobs.values() for name, links in job.links.items())
    return [(job, name) for job, name, links in uses if len(links & set(resource["links"])) >= least]


@_kind("longest chain", job=str, parts=list)
def _longest_chain(instance: Document, jobs: Jobs, argument: Document) -> int:
    need(instance["horizon"] == "finite", "the horizon is cyclic")
    need(argument["job"] in jobs, "there is no such task-graph job")
    job = jobs[argument["job"]]
    need(bool(argument["parts"]), "there are no parts")
    length = later = 0
    last: str | None = None
    for part in argument["parts"]:
        fields(part, {"operations": list, "times": int}, "part")
        need(bool(part["operations"]) and part["times"] >= 1, "a part has no operations or is never")
        operations = [_operation(job.graph, operation) for operation in part["operations"]]
        for k in range(min(2, part["times"])):
            for name, lag in operations:
                need(last is None or _waits(job.graph, last, name, lag), f"{name} does not wait {lag} for {last}")
                last = name
            if k == 0:
                length += part["times"] * sum(job.in_chains[name] for name, _ in operations)
                later += part["times"] * sum(lag for _, lag in operations)
    need(later < job.graph.job["iterations"], "the sequence goes over more iterations than there are")
    return int(job.graph.job["release_us"]) + length


def _operation(graph: Graph, value: object) -> tuple[str, int]:
    if isinstance(value, list):
        need(len(value) == 2 and type(value[1]) is int and value[1] >= 1, "an operation has no number of at least 1")
    name, lag = value if isinstance(value, list) else (value, 0)
    different([name], graph.operations, "operations")
    return name, lag


def _waits(graph: Graph, before: str, after: str, lag: int) -> bool:
    if [before, after, lag] in graph.shape["edges"] or (before == after and lag == 1):
        return True
    both_blocks = before in graph.blocks and after in graph.blocks
    share = both_blocks and set(slots_of(graph.blocks[before])) & set(slots_of(graph.blocks[after]))
    barrier = graph.shape["barrier"]
    return lag >= 1 and (barrier == "job" or (barrier == "slot" and bool(share)))


@_kind("span between barriers", slot=list, head=int, tail=int)
def _span_between_barriers(instance: Document, jobs: Jobs, argument: Document) -> int:
    name, slot = slot_named({name: job.graph for name, job in jobs.items()}, argument["slot"])
    job, head, tail = jobs[name], argument["head"], argument["tail"]
    need(instance["horizon"] == "cyclic", "the horizon is finite")
    need(job.graph.shape["barrier"] != "none", "there is no barrier")
    need(head >= 0 and tail >= 0, "head or tail is below 0")
    blocks = job.graph.blocks_of[slot]
    members = blocks if job.graph.shape["barrier"] == "slot" else job.graph.operations.keys()
    heads, tails = job.before(members), job.behind(members)
    counted = [job.in_chains[block] for block in blocks if heads[block] >= head and tails[block] >= tail]
    need(bool(counted), "no block counts")
    return int(job.graph.job["iterations"]) * (head + tail + sum(counted))


@_kind("held memory", slot=list, unit=int, work=int, capacity=int)
def _held_memory(instance: Document, jobs: Jobs, argument: Document) -> int:
    graphs = {name: job.graph for name, job in jobs.items()}
    name, slot = slot_named(graphs, argument["slot"])
    graph = graphs[name]
    intervals = [
        (interval["bytes"], interval_us(graph, interval))
        for interval in graph.shape["holds"]
        if interval.get("slot", slots_of(graph.blocks[interval["from"]])[0]) == slot
    ]
    intervals = [(size, length) for size, length in intervals if size >= 1 and length >= 1]
    need(bool(intervals), "no memory interval counts")
    unit = gcd(*(size for size, _ in intervals))
    work = graph.job["iterations"] * sum(size // unit * length for size, length in intervals)
    servers = [one for one in instance["cluster"]["servers"] if one["gpu_type"] in graph.types[slot]]
    most = max((server["gpu_memory"] for server in servers), default=0)
    capacity = max(1, (most - graph.slots[slot]["memory"]) // unit)
    for fact, value in (("unit", unit), ("work", work), ("capacity", capacity)):
        need(argument[fact] == value, f"{fact} is {value}")
    return -(-work // capacity)


@_kind("placements", bound=int, order=list, arguments=list, tree=object)
def _placements(instance: Document, jobs: Jobs, argument: Document) -> int:
    search = Placements(instance, jobs, argument)
    search.visit(argument["tree"], 0)
    need(search.used == set(range(len(argument["arguments"]))), "some argument is not used")
    return int(argument["bound"])


def _listed(argument: Document) -> int:
    """Return how many operations the lists of an argument have."""
    parts = argument.get("parts", [])
    for part in parts:
        fields(part, {"operations": list, "times": int}, "part")
    return sum(len(part["operations"]) for part in parts)


class Placements:
    """All ways to give slots their servers, one after the other, and what is proven of each."""

    def __init__(self, instance: Document, jobs: Jobs, argument: Document) -> None:
        self.instance, self.argument, self.jobs = instance, argument, dict(jobs)
        self.graphs = {name: job.graph for name, job in jobs.items()}
        self.order = [slot_named(self.graphs, slot) for slot in argument["order"]]
        need(len(set(self.order)) == len(self.order) <= 400, "order has a slot twice or more than 400")
        need(not any("restart_us" in self.graphs[name].job for name, _ in self.order), "a job may move")
        self.server_of: dict[str, dict[str, str]] = {name: {} for name in jobs}
        self.used: set[int] = set()
        cluster = instance["cluster"]
        self.servers = {server["name"]: server for server in cluster["servers"]}
        nodes = [*self.servers, *cluster["switches"]]
        circle = len(cluster["links"]) != len(nodes) - len(parts(nodes, cluster["links"]))
        policy = any("route_policy" in self.graphs[name].job for name, _ in self.order)
        kinds: dict[object, int] = {}
        self.alike = {
            name: kinds.setdefault(name if circle or policy else self._likeness(server), len(kinds))
            for name, server in self.servers.items()
        }
        for inner in argument["arguments"]:
            known = type(inner) is dict and inner.get("kind") in (
                *("exclusive operations", "longest chain"),
                "span between barriers",
            )
            need(known, "an argument of placements is of another kind")
            fields(inner, ENDS[inner["kind"]][0], inner["kind"])

    def _likeness(self, server: Document) -> object:
        name = server["name"]
        links = [
            (*(end for end in link["ends"] if end != name), link["bandwidth"], link["latency_us"])
            for link in self.instance["cluster"]["links"]
            if name in link["ends"]
        ]
        if len(links) > 1:
            return name
        keys = ("gpu_type", "gpus", "gpu_memory", "fabric_bandwidth", "fabric_latency_us")
        return (*links, *(server[key] for key in keys))

    def visit(self, tree: Any, depth: int) -> None:
        """Raise unless the tree proves the bound where slots have the servers that they have now."""
        if type(tree) is int:
            need(0 <= tree < len(self.argument["arguments"]), "there is no such argument")
            inner = self.argument["arguments"][tree]
            spend(self.instance, "operations of cases", _listed(inner), 1_000_000)
            value = ENDS[inner["kind"]][1](self.instance, self.jobs, inner)
            need(value >= self.argument["bound"], f"argument {tree} proves {value} alone")
            self.used.add(tree)
            return
        need(type(tree) is dict and depth < len(self.order), "a tree is neither an object for a slot nor an integer")
        job, slot = self.order[depth]
        graph, others = self.graphs[job], self.server_of[job].values()
        taken = {server for servers in self.server_of.values() for server in servers.values()}
        seen: set[int] = set()
        expected = []
        for server, data in self.servers.items():
            if graph.may_be_on(slot, data, others) and (server in taken or self.alike[server] not in seen):
                expected.append(server)
                if server not in taken:
                    seen.add(self.alike[server])
        need(tree.keys() == set(expected), f"slot {slot} may be on {expected}, not on {list(tree)}")
        before = self.jobs[job]
        for server, subtree in tree.items():
            self.server_of[job][slot] = server
            self.jobs[job] = Placed(self.graphs[job], dict(self.server_of[job]))
            self.visit(subtree, depth + 1)
            del self.server_of[job][slot]
        self.jobs[job] = before
