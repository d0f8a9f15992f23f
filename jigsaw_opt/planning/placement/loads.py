"""Loads of devices: the work of their operators, and moving outputs that others read or wrote.

An accelerator pays for every output that enters or leaves it, once each; CPUs pay nothing. With each output go its
operator and those that read it: it is paid for where an accelerator has some of these and not all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from jigsaw_opt.documents.readers.dnn_partitioning import OperatorGraph

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["DeviceLoad", "Groups", "Placed", "groups_of", "ordered_groups", "placed"]


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """A device with its operators and its load."""

    kind: str
    load_ns: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Operators on devices.

    `bound_ns`: no placement of its kind has less. `devices`: the devices that have any operator.
    """

    max_load_ns: int
    bound_ns: int
    devices: tuple[DeviceLoad, ...]


@dataclass(frozen=True)
class Groups:
    """Operators that sit together, and what they cost as one; sets of groups are bits of a number.

    `members`: for each group, places of its operators. `before`: for each group, those that come first in a contiguous
    placement.
    """

    graph: OperatorGraph
    members: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]

    @cached_property
    def accelerator_ns(self) -> list[int | None]:
        """By group, its time on an accelerator; None where some operator runs on none."""
        found: list[int | None] = []
        for own in self.members:
            times = [self.graph.operators[at].accelerator_ns for at in own]
            found.append(None if None in times else sum(time for time in times if time is not None))
        return found

    @cached_property
    def cpu_ns(self) -> list[int]:
        """By group, its time on a CPU."""
        return [sum(self.graph.operators[at].cpu_ns for at in own) for own in self.members]

    @cached_property
    def bytes(self) -> list[int]:
        """By group, its memory."""
        return [sum(self.graph.operators[at].bytes for at in own) for own in self.members]

    @cached_property
    def outputs(self) -> list[tuple[int, int]]:
        """Groups that an output joins, and the time of moving it; outputs that join the same groups are one."""
        group = {at: number for number, own in enumerate(self.members) for at in own}
        joined = [1 << group[at] for at in range(len(self.graph.operators))]
        for tail, head in self.graph.edges:
            joined[tail] |= 1 << group[head]
        total: dict[int, int] = {}
        for at, mask in enumerate(joined):
            time = self.graph.operators[at].output_ns
            if time and mask.bit_count() > 1:
                total[mask] = total.get(mask, 0) + time
        return list(total.items())

    def load_ns(self, own: int, kind: str) -> int | None:
        """Return the load of a device that has a set of groups.

        Nanoseconds: compute, and for accelerators each output that enters or leaves; None where an operator cannot run
        there or memory does not suffice.
        """
        numbers = [at for at in range(len(self.members)) if own >> at & 1]
        if kind == "cpu":
            return sum(self.cpu_ns[at] for at in numbers)
        times = [self.accelerator_ns[at] for at in numbers]
        if None in times or sum(self.bytes[at] for at in numbers) > self.graph.memory:
            return None
        return sum(time for time in times if time is not None) + sum(
            time for mask, time in self.outputs if mask & own and mask & ~own
        )

    def nodes(self, own: int) -> tuple[int, ...]:
        """Return ids of the operators of a set of groups."""
        places = [at for number, members in enumerate(self.members) if own >> number & 1 for at in members]
        return tuple(sorted(self.graph.operators[at].number for at in places))


def placed(groups: Groups, sets: Iterable[tuple[int, str]], bound_ns: int) -> Placed:
    """Build the placement of sets of groups on devices.

    `sets`: for each device that is used, its set as bits of a number, and its kind. `bound_ns`: A bound of the largest
    load, in nanoseconds.
    """
    devices = []
    for own, kind in sets:
        load = groups.load_ns(own, kind)
        if load is None:
            raise ValueError(f"an {kind} cannot have {groups.nodes(own)}")
        devices.append(DeviceLoad(kind, load, groups.nodes(own)))
    return Placed(max(device.load_ns for device in devices), bound_ns, tuple(devices))


def groups_of(graph: OperatorGraph) -> Groups:
    """Return the groups of a workload as it states them, in no order."""
    members: dict[int, list[int]] = {}
    for at, operator in enumerate(graph.operators):
        members.setdefault(operator.group, []).append(at)
    return Groups(graph, tuple(map(tuple, members.values())), (0,) * len(members))


def ordered_groups(graph: OperatorGraph) -> Groups:
    """Return the groups of a workload in an order in which each comes behind those before it.

    Where backward operators sit with forward ones, the forward pass says what comes first. A group that has only
    backward ones takes part mirrored. Groups that come before one another are one. So is a forward operator that takes
    no time with the only neighbour that it has: whatever is elsewhere, it costs nothing there.
    """
    import networkx as nx

    group = _merged_leaves(graph, [operator.group for operator in graph.operators])
    order = _order(graph, group)
    condensed = nx.condensation(order)
    numbers = list(nx.lexicographical_topological_sort(condensed))
    place = {number: at for at, number in enumerate(numbers)}
    joint = {name: place[number] for number in numbers for name in condensed.nodes[number]["members"]}
    members: list[list[int]] = [[] for _ in numbers]
    for at, name in enumerate(group):
        members[joint[name]].append(at)
    before = [0] * len(numbers)
    for one, other in condensed.edges:
        before[place[other]] |= 1 << place[one]
    return Groups(graph, tuple(map(tuple, members)), tuple(before))


def _order(graph: OperatorGraph, group: Sequence[int]) -> nx.DiGraph[int]:
    """Return which group comes before which."""
    import networkx as nx

    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(sorted(set(group)))
    forward = {group[at] for at, operator in enumerate(graph.operators) if not operator.backward}
    for tail, head in graph.edges:
        one, other = group[tail], group[head]
        back = graph.operators[tail].backward, graph.operators[head].backward
        if one != other and back == (False, False):
            order.add_edge(one, other)
        elif one != other and back == (True, True) and not {one, other} <= forward:
            order.add_edge(other, one)
    return order


def _merged_leaves(graph: OperatorGraph, group: list[int]) -> list[int]:
    """Merge each group without any time into its only neighbour in the forward pass; return the new groups."""
    while True:
        time: dict[int, int] = dict.fromkeys(group, 0)
        neighbours: dict[int, set[int]] = {name: set() for name in time}
        bound: set[int] = set()
        for name, operator in zip(group, graph.operators, strict=True):
            time[name] += (operator.accelerator_ns or 0) + operator.cpu_ns
        for tail, head in graph.edges:
            one, other = group[tail], group[head]
            if graph.operators[tail].backward or graph.operators[head].backward:
                # What the backward pass reads binds its group.
                bound |= {one, other} if one != other else set()
            elif one != other:
                neighbours[one].add(other)
                neighbours[other].add(one)
        joining = {name: min(own) for name, own in neighbours.items() if not time[name] and len(own) == 1}
        free = [name for name in joining if name not in bound]
        if not free:
            return group
        leaf = min(free)
        group = [joining[leaf] if member == leaf else member for member in group]
