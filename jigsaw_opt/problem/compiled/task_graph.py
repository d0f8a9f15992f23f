"""A compiled task-graph job: its operations by number, and all that one of them waits for (specification:
task-graph-jobs).

Operations of one iteration are numbered, the blocks first and then the transfers, both in the order of the task graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from typing import NamedTuple

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel, Routes
from jigsaw_opt.problem.costs import ceil_div, transfer_us
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.task_graph import Barrier, TaskGraph, TaskGraphJob

_MOST_PAIRS = 10_000
"""Largest number of pairs of operations that state a barrier; above it, they wait for a milestone instead."""


class Precedence(NamedTuple):
    """`after` starts no earlier than `before` ends, so many periods later; both are (iteration, operation).

    Numbers of milestones are behind those of all operations.
    """

    before: tuple[int, int]
    after: tuple[int, int]
    periods: int


class NumberedHold(NamedTuple):
    """Bytes that the GPU of a slot holds from the start of one block to the end of another, by number."""

    start: int
    end: int
    slot: int
    bytes: int


@dataclass(frozen=True)
class CompiledTaskGraph:
    """One compiled task-graph job.

    `gpu_types`: ``gpu_types[slot]``: the types of GPU that may hold the slot. `takes_part`: ``takes_part[operation]``:
    numbers of its slots, which are those of a block, source and target, or all in the ring. `edges`: every edge of the
    task graph by number: before, after and lag. The edge of each operation to itself is among them. `holds`: every hold
    of the task graph by number.
    """

    job: TaskGraphJob
    gpu_types: tuple[tuple[str, ...], ...]
    takes_part: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, int, int], ...]
    holds: tuple[NumberedHold, ...]

    @property
    def shape(self) -> TaskGraph:
        """Its task graph."""
        return self.job.shape

    @property
    def blocks(self) -> int:
        """Number of blocks of one iteration."""
        return len(self.shape.blocks)

    @property
    def size(self) -> int:
        """Number of operations of one iteration."""
        return len(self.takes_part)

    @property
    def milestones(self) -> int:
        """Number of milestones of one iteration, which take no time: one for each barrier with very many pairs.

        The operations that begin an iteration wait for its milestone, and this for those that end the iteration before.
        Milestones are not part of plans.
        """
        return len(self.milestone_slots)

    @property
    def milestone_slots(self) -> tuple[tuple[int, ...], ...]:
        """``milestone_slots[milestone]``: numbers of the slots that the barrier is among."""
        return tuple(slots for slots, _, _ in self._barriers[1])

    @cached_property
    def blocks_of(self) -> tuple[tuple[int, ...], ...]:
        """``blocks_of[slot]``: numbers of the blocks that the slot takes part in."""
        return tuple(
            tuple(block for block in range(self.blocks) if slot in self.takes_part[block])
            for slot in range(len(self.shape.slots))
        )

    def block_us(self, block: int, gpu_types: Iterable[str]) -> int:
        """Return the duration of a block on GPUs of these types, in microseconds."""
        table = self.shape.blocks[block].duration_us
        return max(table[gpu_type] for gpu_type in gpu_types)

    def channel(self, operation: int, servers: Sequence[int], routes: Routes) -> Channel | None:
        """Return what a transfer uses; None where no route joins its slots."""
        routes = routes.under(self.job.route_policy)
        if self.shape.transfers[operation - self.blocks].among or servers[0] == servers[1]:
            return routes.channel(Counter(servers))
        links = routes.between(*servers)
        if links is None:
            return None
        used = [routes.cluster.links[link] for link in links]
        return Channel(
            tuple(sorted(set(links))), min(link.bandwidth for link in used), max(link.latency_us for link in used)
        )

    def transfer_us(self, operation: int, channel: Channel) -> int:
        """Return the duration of a transfer over a channel, in microseconds.

        Notes
        -----
        Specification: durations-of-task-graph-operations.
        """
        transfer = self.shape.transfers[operation - self.blocks]
        if transfer.among:
            workers = len(transfer.among)
            return transfer_us(transfer.bytes, workers, workers, channel.rate, channel.latency_us)
        return ceil_div(transfer.bytes * 10**6, channel.rate) + channel.latency_us

    def precedences(self, horizon: Horizon, within_slots: bool = True) -> Iterator[Precedence]:
        """Yield everything that operations of all iterations wait for: edges and barrier, each once.

        `within_slots`: whether also what blocks of a slot wait for in those of a period before, where the job has one
        iteration.
        """
        count = self.job.iterations
        left_out = count == 1 and self.shape.barrier == "slot" and (horizon == "finite" or not within_slots)
        for before, after, lag in checking_deadline(self.edges if left_out else self._steps()):
            for iteration in range(count):
                periods, later = divmod(iteration + lag, count)
                if periods == 0 or horizon == "cyclic":
                    yield Precedence((iteration, before), (later, after), periods)

    def _steps(self) -> Iterator[tuple[int, int, int]]:
        """Yield what waits for what, and so many iterations later: edges and barrier, each once."""
        yield from self.edges
        known = set(self.edges)
        pairs, milestones = self._barriers
        for before, after in pairs:
            if (before, after, 1) not in known:
                yield before, after, 1
        for milestone, (_, last, first) in enumerate(milestones, self.size):
            for before in last:
                yield before, milestone, 1
            for after in first:
                yield milestone, after, 0

    @cached_property
    def _after(self) -> list[list[int]]:
        """By operation, what waits for it in its own iteration."""
        found: list[list[int]] = [[] for _ in range(self.size)]
        for before, after, lag in self.edges:
            if lag == 0:
                found[before].append(after)
        return found

    @cached_property
    def _place(self) -> dict[int, int]:
        """By operation, its place in an order in which each is behind those that it waits for in its iteration."""
        before: dict[int, list[int]] = {operation: [] for operation in range(self.size)}
        for operation, later in enumerate(self._after):
            for after in later:
                before[after].append(operation)
        return {operation: place for place, operation in enumerate(TopologicalSorter(before).static_order())}

    def longest_from(
        self, operation: int, lengths_us: Sequence[int], ends: Collection[int] | None = None
    ) -> dict[int, int]:
        """Return the longest time from an operation's start to the end of each that waits for it in its iteration.

        `ends`: the operations that matter; others may be left out. None for all.
        """
        place = self._place
        last = self.size if ends is None else max(place[end] for end in ends)
        # Depth first without recursion, for chains may be long: each operation follows all that wait for it.
        order, open_, seen = list[int](), [(operation, iter(self._after[operation]))], {operation}
        while open_:
            at, later = open_[-1]
            following = next((other for other in later if other not in seen and place[other] <= last), None)
            if following is None:
                order.append(open_.pop()[0])
            else:
                seen.add(following)
                open_.append((following, iter(self._after[following])))
        longest = {operation: lengths_us[operation]}
        for at in reversed(order):
            for following in self._after[at]:
                if following not in seen:
                    continue
                longest[following] = max(longest.get(following, 0), longest[at] + lengths_us[following])
        return longest

    @cached_property
    def _barriers(self) -> tuple[tuple[tuple[int, int], ...], list[tuple[tuple[int, ...], list[int], list[int]]]]:
        """Pairs of operations between which a barrier lies; by milestone, its slots and what ends and begins there.

        What follows from edges of lag 0 is left out.
        """
        barrier: Barrier = self.shape.barrier
        if barrier == "none":
            return (), []
        slots = range(len(self.shape.slots))
        groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((slot,), self.blocks_of[slot]) for slot in slots]
        if barrier == "job":
            groups = [(tuple(slots), tuple(range(self.size)))]
        found: dict[tuple[int, int], None] = {}
        milestones = []
        for own, group in groups:
            members = set(group)
            inside = [(a, b) for a, b, lag in self.edges if lag == 0 and a in members and b in members]
            before, after = {a for a, _ in inside}, {b for _, b in inside}
            # Only operations without a follower or a predecessor in the group need a pair; edges order the others.
            last, first = [o for o in group if o not in before], [o for o in group if o not in after]
            if len(last) * len(first) > _MOST_PAIRS:
                milestones.append((own, last, first))
            else:
                found |= dict.fromkeys((a, b) for a in last for b in first)
        return tuple(found), milestones


def compile_task_graph(job: TaskGraphJob) -> CompiledTaskGraph:
    """Compile a task-graph job: names become numbers, and the edge of each operation to itself is added."""
    shape = job.shape
    slot = {own.name: number for number, own in enumerate(shape.slots)}
    takes_part = [tuple(slot[name] for name in block.slots) for block in shape.blocks]
    for transfer in shape.transfers:
        ends = transfer.among or (transfer.source or "", transfer.target or "")
        takes_part.append(tuple(slot[name] for name in ends))
    names = [*(block.name for block in shape.blocks), *(transfer.name for transfer in shape.transfers)]
    number = {name: n for n, name in enumerate(names)}
    edges = {(number[edge.before], number[edge.after], edge.lag): None for edge in shape.edges}
    edges |= dict.fromkeys((operation, operation, 1) for operation in range(len(takes_part)))
    holds = tuple(
        NumberedHold(
            number[hold.start], number[hold.end], _slot_of(hold.slot, slot, takes_part[number[hold.start]]), hold.bytes
        )
        for hold in shape.holds
        if hold.bytes > 0
    )
    return CompiledTaskGraph(job, _gpu_types(shape), tuple(takes_part), tuple(edges), holds)


def _slot_of(name: str | None, slot: Mapping[str, int], slots: Sequence[int]) -> int:
    """Return the slot of a hold: the stated one, or the only one of its blocks."""
    return slots[0] if name is None else slot[name]


def _gpu_types(shape: TaskGraph) -> tuple[tuple[str, ...], ...]:
    """Return by slot the types that every block of the slot has a duration for."""
    types = []
    for slot in shape.slots:
        tables = [block.duration_us for block in shape.blocks if slot.name in block.slots]
        types.append(tuple(sorted(set.intersection(*(set(table) for table in tables)))))
    return tuple(types)
