"""Best-first search over the placements of slots on servers (jobs with a task graph).

A node of the search places some slots of the jobs. Whatever the others do, the blocks of a placed slot take its GPU,
and the transfers among placed slots take the links of their route, one after the other: each of these loads, with the
least head and tail, is at most the objective of every plan that places these slots so. Placing one more slot only adds
loads. A node that places all slots is valued once more, by durations, heads, tails and longest chains as they are
there. Every plan is below some open node, so the least value of the open nodes bounds all plans at any time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import combinations, count
from typing import Any, NamedTuple

from jigsaw_opt.problem.bound_proof import Argument
from jigsaw_opt.problem.clock import check_deadline
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.solvers.bounds.activities.arguments import chain_argument, exclusive_argument, placements_argument
from jigsaw_opt.solvers.bounds.activities.flushes import flushes_of
from jigsaw_opt.solvers.bounds.activities.head_and_tail import Load, best_head_and_tail, merged
from jigsaw_opt.solvers.bounds.activities.placement_order import alike_servers, slot_order
from jigsaw_opt.solvers.bounds.activities.slot_loads import TaskGraphData, earliest_end, sum_of_ends, task_graph_data
from jigsaw_opt.solvers.bounds.proof import Proof, Term, added
from jigsaw_opt.solvers.bounds.relaxation import Bound, BoundBudget, BoundContext, Relaxation

_MOST_STEPS = 60_000
"""Largest number of loads that are added up at once: a tenth of a second."""
_COPIED_IN_A_STEP = 16
"""Number of loads that are copied in the time in which one is added up."""
_MOST_TIMED = 20_000
"""Largest number of operations that are timed at once: a tenth of a second."""
_SECONDS_OF_A_ROUND = 0.3
"""Work of both together on a usual core."""
_MOST_OPEN = 50_000
"""Largest number of open nodes, which is some hundred megabytes."""
_STEPS_OF_AN_OPERATION = 100
"""In a search, either is at most so many times the number of operations of one iteration: small jobs take little."""

_MOST_LINKS = 8
"""Largest number of links of a cluster of which sets of three are loaded, too."""

_MOST_LISTED = 5_000
"""Largest number of nodes of which an argument is made."""
_MOST_OPERATIONS = 1_000_000
"""Largest number of operations in the chains of all nodes of an argument (docs/proofs.md: limits)."""
_CHAIN, _FLUSH = "the longest chain of operations", "the blocks of a slot between barriers"

Resource = tuple[str, int]
"""A link, a set of three links, a server of one GPU, or the GPU of a slot, by number; or spans of a job."""


class _SlotGroup(NamedTuple):
    """Transfers of one job among the same slots, or blocks of one slot; `last` is where the last slot is placed."""

    job: int
    slots: tuple[int, ...]
    operations: tuple[int, ...]
    head: int
    tail: int
    last: int


class _PlacedLoad(NamedTuple):
    """A value, the parts that it is the sum of, and what they are of.

    `head, tail`: the least ones of the operations that count. `slot`: that of spans between barriers.
    """

    value: int
    parts: tuple[int, ...] = ()
    resource: Resource = ("", 0)
    head: int = 0
    tail: int = 0
    slot: int = 0


@dataclass(frozen=True, slots=True)
class _PlacedSlots:
    """Servers of the first slots of the search, and by resource the least head, all work and the least tail there."""

    servers: tuple[int, ...]
    loads: dict[Resource, Load]
    found: _PlacedLoad
    timed: bool = False


class _PlacementTree:
    """The search for some jobs together.

    `known`: A bound that is proven already; nothing below it is told apart.
    """

    def __init__(self, operations: Operations, data: Sequence[TaskGraphData], known: int) -> None:
        self._cluster, self._data, self._cyclic = operations.cluster, data, operations.horizon == "cyclic"
        self._routes = [operations.routes.under(each.graph.job.route_policy) for each in data]
        self._order = [(job, slot) for job, each in enumerate(data) for slot in slot_order(each)]
        self._place = {key: place for place, key in enumerate(self._order)}
        self._groups: list[list[_SlotGroup]] = [[] for _ in self._order]
        for job in range(len(data)):
            for group in self._groups_of(job):
                self._groups[group.last].append(group)
        self._work, self._steps, self._of_links = cache(self._work_us), 0, cache(self._links)
        links = len(self._cluster.links)
        self._threes = list(combinations(range(links), 3)) if links <= _MOST_LINKS else []
        policies = any(each.graph.job.route_policy for each in data)
        self._twins = list(range(len(self._cluster.servers))) if policies else alike_servers(self._cluster)
        self._turn, self._known, self._too_large = count(), _PlacedLoad(known), False
        self._open: list[tuple[int, int, int, _PlacedSlots]] = []
        self._dead: list[tuple[int, ...]] = []
        self._push(_PlacedSlots((), {}, self._known))

    @property
    def finished(self) -> bool:
        """Whether no further search raises the bound, or it would take too much memory."""
        return not self._open or self._open[0][-1].timed or self._too_large or len(self._open) > _MOST_OPEN

    def advance(self, steps: int, timed: int) -> _PlacedLoad:
        """Go on with the search, and return a bound on the objective, or on the end of the only job."""
        size = sum(each.graph.size for each in self._data)
        self._steps = steps
        while self._steps > 0 and not self.finished:
            check_deadline()
            node = self._open[0][-1]
            whole = len(node.servers) == len(self._order)
            if whole and timed <= 0:
                break
            children = []
            for child in [self._timed(node)] if whole else self._children(node):
                children.append(child)
                if self._steps < -steps:
                    # On a cluster as large as this, placing one slot takes more than the limit: the node stays open.
                    self._too_large = True
                    return node.found
            heappop(self._open)
            if not children:
                self._dead.append(node.servers)
            self._steps -= 1
            timed -= size * whole
            for child in children:
                self._push(child)
        # Without an open node there is no plan.
        return self._open[0][-1].found if self._open else self._known

    def _push(self, node: _PlacedSlots) -> None:
        # Of equal values the node that places most comes first, so that a placement without a better bound is found
        # at once.
        heappush(self._open, (node.found.value, -len(node.servers) - node.timed, next(self._turn), node))

    def _groups_of(self, job: int) -> Iterator[_SlotGroup]:
        """Yield the groups of a job, with least heads and tails over all placements."""
        data, graph = self._data[job], self._data[job].graph
        heads, tails = self._heads_and_tails(data)
        members: dict[tuple[int, bool, tuple[int, ...]], list[int]] = defaultdict(list)
        for operation, slots in enumerate(graph.takes_part):
            if operation < graph.blocks:
                # A sharded block takes the GPU of each of its slots.
                for slot in slots:
                    members[0, False, (slot,)].append(operation)
            else:
                members[1, bool(graph.shape.transfers[operation - graph.blocks].among), slots].append(operation)
        for (_, _, slots), own in members.items():
            least = min(heads[operation] for operation in own), min(tails[operation] for operation in own)
            yield _SlotGroup(job, slots, tuple(own), *least, max(self._place[job, slot] for slot in slots))

    def _heads_and_tails(self, data: TaskGraphData) -> tuple[list[int], list[int]]:
        if self._cyclic:
            # Neighbouring periods overlap, so neither a head nor a tail is idle time there.
            return [0] * data.graph.size, [0] * data.graph.size
        return [data.graph.job.release_us + head for head in data.heads()], data.tails()

    def _children(self, node: _PlacedSlots) -> Iterator[_PlacedSlots]:
        """Yield the nodes that place the next slot as well, one for servers of which each could be the other."""
        place, servers = len(node.servers), self._cluster.servers
        job, slot = self._order[place]
        graph = self._data[job].graph
        own = [server for server, (other, _) in zip(node.servers, self._order, strict=False) if other == job]
        taken, used, seen = Counter(own), set(node.servers), set[int]()
        for number, server in enumerate(servers):
            fits = taken[number] < server.gpus and server.gpu_type in graph.gpu_types[slot]
            if not fits or server.gpu_memory < graph.shape.slots[slot].memory:
                continue
            if number not in used:
                if self._twins[number] in seen:
                    continue
                seen.add(self._twins[number])
            if self._routes[job].joins(number, [each for each in taken if each != number]):
                yield self._child(node, number)

    def _child(self, node: _PlacedSlots, server: int) -> _PlacedSlots:
        chosen, found = (*node.servers, server), node.found
        loads = dict(node.loads)
        self._steps -= 1 + len(loads) // _COPIED_IN_A_STEP
        for group in self._groups[len(node.servers)]:
            servers = tuple(chosen[self._place[group.job, slot]] for slot in group.slots)
            resources, length = self._work(group, servers)
            self._steps -= len(resources)
            for resource in resources:
                head, work, tail = loads.get(resource, (group.head, 0, group.tail))
                loads[resource] = own = min(head, group.head), work + length, min(tail, group.tail)
                # Fewer transfers may have a greater head or tail, so that a sum counts even if a later one is less.
                if sum(own) > found.value:
                    found = _PlacedLoad(sum(own), own, resource, own[0], own[2])
        return _PlacedSlots(chosen, loads, found)

    def _work_us(self, group: _SlotGroup, servers: tuple[int, ...]) -> tuple[tuple[Resource, ...], int]:
        """Return the resources that a group takes on these servers, and for how long in all iterations."""
        graph, iterations = self._data[group.job].graph, self._data[group.job].graph.job.iterations
        if group.operations[0] < graph.blocks:
            gpu_type = self._cluster.servers[servers[0]].gpu_type
            # The GPU of the slowest slot decides about a sharded block, so that this is the least.
            length = sum(graph.shape.blocks[block].duration_us[gpu_type] for block in group.operations)
            return (self._gpu(group.job, group.slots[0], servers[0]),), iterations * length
        channel = graph.channel(group.operations[0], servers, self._routes[group.job])
        assert channel is not None, "a slot is placed only where routes lead to the others"
        if not channel.links:
            return (), 0
        length = sum(graph.transfer_us(operation, channel) for operation in group.operations)
        return self._of_links(channel.links), iterations * length

    def _links(self, used: tuple[int, ...]) -> tuple[Resource, ...]:
        """Return the resources that a transfer over some links takes.

        Transfers that use two of the same three links each have one in common, so that they exclude each other.
        """
        threes = (k for k, three in enumerate(self._threes) if len({*used, *three}) <= len(used) + 1)
        return (*(("link", link) for link in used), *(("three", k) for k in threes))

    def _gpu(self, job: int, slot: int, server: int) -> Resource:
        """Return the GPU of a slot: slots on a server of one GPU share it, those on others may not."""
        return ("server", server) if self._cluster.servers[server].gpus == 1 else ("slot", self._place[job, slot])

    def bound(self, found: _PlacedLoad) -> Bound:
        """Return the bound that a value is."""
        jobs = tuple(each.graph.job.name for each in self._data)
        what, links = self._describe(found)
        sentence = f"{what}, in the best of all placements of slots on servers"
        arithmetic = f"{added(found.parts)} = {found.value}"
        names = ("head", "work", "tail") if len(found.parts) == 3 else ("release", "span")[-len(found.parts) :]
        terms = tuple(Term(name, part, jobs=jobs) for name, part in zip(names, found.parts, strict=True))
        argument = self._argument(found.value)
        return Bound(found.value, Proof(sentence, arithmetic, terms, jobs, links=links, argument=argument))

    def _describe(self, found: _PlacedLoad) -> tuple[str, tuple[str, ...]]:
        """Return what a value is of, and the names of its links."""
        kind, number = found.resource
        if kind in ("link", "three"):
            links = (number,) if kind == "link" else self._threes[number]
            names = tuple(self._cluster.links[link].name for link in links)
            over = (
                f"link {names[0]!r}" if kind == "link" else f"two of the links {names[0]!r}, {names[1]!r}, {names[2]!r}"
            )
            return f"the transfers over {over}", names
        if kind == "server":
            return f"the blocks on server {self._cluster.servers[number].name!r}", ()
        if kind == "slot":
            job, slot = self._order[number]
            graph = self._data[job].graph
            return f"the blocks of slot {graph.shape.slots[slot].name!r} of job {graph.job.name!r}", ()
        return f"{kind} of job {self._data[number].graph.job.name!r}", ()

    def _timed(self, node: _PlacedSlots) -> _PlacedSlots:
        """Return the node with the value of its placement: loads of each resource, and longest chains or flushes."""
        found, members = node.found, defaultdict[Resource, list[Load]](list)
        for job, data in enumerate(self._data):
            graph, (placed, resources) = data.graph, self._placed(node, job)
            heads, tails = self._heads_and_tails(placed)
            for operation, own in enumerate(resources):
                load = heads[operation], graph.job.iterations * placed.least_us[operation], tails[operation]
                for resource in own:
                    members[resource].append(load)
            spans = [found]
            if not self._cyclic:
                parts = graph.job.release_us, placed.longest_chain()[0]
                spans.append(_PlacedLoad(sum(parts), parts, (_CHAIN, job)))
            elif graph.shape.barrier != "none":
                spans += [
                    _PlacedLoad(value, (value,), (_FLUSH, job), head, tail, slot)
                    for value, slot, head, tail in flushes_of(placed)
                ]
            found = max(spans, key=lambda each: each.value)
        for resource, loads in members.items():
            most = max(loads)[0] + sum(load[1] for load in loads) + max(load[2] for load in loads)
            if most <= found.value:
                continue
            total, head, tail = best_head_and_tail(merged(loads))
            best = _PlacedLoad(total, (head, total - head - tail, tail), resource, head, tail)
            found = max(found, best, key=lambda each: each.value)
        return _PlacedSlots(node.servers, node.loads, found, timed=True)

    def _placed(self, node: _PlacedSlots, job: int) -> tuple[TaskGraphData, list[list[Resource]]]:
        """Return the data of a job on its servers, and the resources of each operation there."""
        graph = self._data[job].graph
        at = [node.servers[self._place[job, slot]] for slot in range(len(graph.shape.slots))]
        lengths, resources = list[int](), list[list[Resource]]()
        for operation, slots in enumerate(graph.takes_part):
            servers = tuple(at[slot] for slot in slots)
            if operation < graph.blocks:
                types = (self._cluster.servers[server].gpu_type for server in servers)
                lengths.append(graph.block_us(operation, types))
                resources.append([self._gpu(job, slot, at[slot]) for slot in slots])
                continue
            channel = graph.channel(operation, servers, self._routes[job])
            assert channel is not None, "a slot is placed only where routes lead to the others"
            lengths.append(graph.transfer_us(operation, channel))
            resources.append(list(self._of_links(channel.links)))
        return self._data[job].with_lengths(lengths), resources

    def _argument(self, bound: int) -> Argument | None:
        """Return the cases that the open nodes are, each with what closes it; None where there are too many."""
        nodes = [node for *_, node in self._open]
        if len(nodes) + len(self._dead) > _MOST_LISTED:
            return None
        cases = {node.servers: self._case(node) for node in nodes}
        listed = sum(len(part["operations"]) for own in cases.values() for part in (own or {}).get("parts", ()))
        if listed > _MOST_OPERATIONS:
            return None
        order = [self._slot_names(*each) for each in self._order]
        names = [server.name for server in self._cluster.servers]
        return placements_argument(order, names, bound, cases, self._dead)

    def _case(self, node: _PlacedSlots) -> Argument | None:
        """Return the argument that a node is worth its value."""
        found, (kind, number) = node.found, node.found.resource
        if kind == _CHAIN:
            return chain_argument(self._data[number].graph, self._placed(node, number)[0].longest_chain()[1])
        if kind == _FLUSH:
            slot = self._slot_names(number, found.slot)
            return {"kind": "span between barriers", "slot": slot, "head": found.head, "tail": found.tail}
        resource: dict[str, Any] = {"links": list(self._describe(found)[1])}
        if kind == "server":
            resource = {"server": self._cluster.servers[number].name}
        elif kind == "slot":
            resource = {"slot": self._slot_names(*self._order[number])}
        return exclusive_argument(resource, found.head, found.tail)

    def _slot_names(self, job: int, slot: int) -> list[str]:
        graph = self._data[job].graph
        return [graph.job.name, graph.shape.slots[slot].name]


def _bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    operations, data = context.operations, context.shared(task_graph_data)
    if operations.objective == "weighted_completion":
        yield _weighted(operations, data)
        return
    # Each job by itself is a smaller search; what it proves is the value from which that of all jobs starts.
    for together in [[each] for each in data] + ([data] if len(data) > 1 else []):
        tree = _PlacementTree(operations, together, known)
        found = _first_round(tree, together, len(data))
        if found.value > known:
            known = found.value
            yield tree.bound(found)


def _first_round(tree: _PlacementTree, data: Sequence[TaskGraphData], jobs: int) -> _PlacedLoad:
    """Return what a search proves with its share of the limits."""
    most = _STEPS_OF_AN_OPERATION * sum(each.graph.size for each in data)
    return tree.advance(min(most, _MOST_STEPS // jobs), min(most, _MOST_TIMED // jobs))


def _weighted(operations: Operations, data: Sequence[TaskGraphData]) -> Bound:
    """Return the weighted sum of the ends of all jobs, each alone on the cluster in its best placement."""
    ends = []
    for each in data:
        end = earliest_end(each)
        tree = _PlacementTree(operations, [each], end.value)
        found = _first_round(tree, [each], len(data))
        ends.append(tree.bound(found) if found.value > end.value else end)
    sentence = "every job as if it were alone, in the best of all placements of its slots on servers"
    return sum_of_ends(data, ends, sentence)


def _further_bounds(context: BoundContext, known: int, budget: BoundBudget) -> Iterator[Bound]:
    tree = _PlacementTree(context.operations, context.shared(task_graph_data), known)
    while not (tree.finished or budget.spent):
        found = tree.advance(_MOST_STEPS, _MOST_TIMED)
        budget.charge(_SECONDS_OF_A_ROUND)
        if found.value > known:
            known = found.value
            yield tree.bound(found)


PARTIAL_PLACEMENTS = Relaxation("partial_placements", _bounds, instant=True, task_graphs=True)
"""The relaxation registered as ``partial_placements``."""

MORE_PLACEMENTS = Relaxation(
    "more_placements", _further_bounds, objectives=frozenset({"makespan", "period"}), task_graphs=True
)
"""The search of all jobs together without a limit of its own, registered as ``more_placements``."""
