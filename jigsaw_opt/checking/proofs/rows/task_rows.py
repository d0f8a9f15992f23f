"""Variables and linear rows that are about one task-graph job of a plan alone (docs/proofs.md: rows of a plan)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from jigsaw_opt.checking.proofs.facts.task_graphs import TaskGraphFacts
from jigsaw_opt.checking.proofs.rows.job_rows import Name, PlanRows, ResourceUse, Term

_MOST_SPREADS, _MOST_TRIED, _MOST_OPERATIONS, _MOST_USES = 200, 10_000, 1_000, 100_000


class SlotSpread(NamedTuple):
    """The server of each slot, and by operation its duration and links there; the longest chain of an iteration."""

    servers: tuple[int, ...]
    lengths: Sequence[int]
    links: Sequence[Collection[int]]
    chain: int


def slot_spreads(facts: TaskGraphFacts, iterations: int) -> list[SlotSpread] | None:
    """Return all servers that the slots of a job may have; None for a job that has no rows.

    `iterations`: how many the rows tell apart.
    """
    job, servers = facts.job, facts.cluster.servers
    operations, slots = len(facts.names), [slot.name for slot in job.shape.slots]
    uses = operations * iterations * (1 + sum(server.gpus for server in servers))
    if job.restart_us is not None or operations > _MOST_OPERATIONS or uses > _MOST_USES:
        return None
    held = [[s for s in range(len(servers)) if facts.may_hold(slot, s)] for slot in slots]
    if prod(map(len, held)) > _MOST_TRIED:
        return None
    found = []
    for chosen in product(*held):
        has_room = all(chosen.count(s) <= servers[s].gpus for s in {*chosen})
        if has_room and facts.are_joined({*chosen}) and facts.keep_power_caps(dict(zip(slots, chosen, strict=True))):
            found.append(chosen)
        if len(found) > _MOST_SPREADS:
            return None
    return [_spread(facts, slots, chosen) for chosen in found]


def _spread(facts: TaskGraphFacts, slots: Sequence[str], servers: tuple[int, ...]) -> SlotSpread:
    facts.servers = dict(zip(slots, servers, strict=True))
    placed = [facts.placed(operation) for operation in range(len(facts.names))]
    heads, _ = facts.heads_and_tails()
    lengths = [each.duration_us for each in placed if each is not None]
    facts.servers = {}
    chain = max(head + length for head, length in zip(heads, lengths, strict=True))
    return SlotSpread(servers, lengths, [each.links for each in placed if each is not None], chain)


class TaskRows:
    """The variables of one task-graph job and the rows that are about it alone."""

    def __init__(self, rows: PlanRows, facts: TaskGraphFacts, spreads: Sequence[SlotSpread], number: int) -> None:
        self.rows, self.facts, self.number, self.job = rows, facts, number, facts.job
        self.first_ready = self.job.release_us
        self.iterations = range(1, (1 if rows.together else self.job.iterations) + 1)
        self.slots = [slot.name for slot in self.job.shape.slots]
        # Most periods between the first start of a slot and a start or end of an operation: only a barrier of the job
        # keeps all of an iteration within a period.
        serial = self.job.shape.barrier == "job"
        self.reach = 2 if serial else 2 * self.job.iterations * len(facts.names)
        most = self.reach * rows.limit
        self.low, self.high = (self.job.release_us, rows.limit) if rows.finite else (-most, most)
        if self.job.deadline_us is not None:
            self.high = min(self.high, self.job.deadline_us)
        self.after = cache(facts.longest_from)
        self.uses: dict[tuple[int, int], int] = {}
        self.times: dict[tuple[int, int], tuple[int, int]] = {}
        self.lengths: list[int] = []
        self.peaks: dict[str, int] = {}
        self._place(spreads)
        if not rows.together:
            self._operations()
        self.begins, self.ends = self._group((), () if rows.together else range(len(facts.names)))
        in_turn = self.job.iterations if serial else 1
        chains = [(in_turn * spread.chain, m) for m, spread in self.spreads]
        rows.at_most([(1, self.begins[0]), (-1, self.ends[-1]), *chains], 0)
        if not rows.together:
            self._slots()
            self._edges()
            self._copies()

    tail = 0
    """Least time between the end of a block and that of the job."""

    def _place(self, spreads: Sequence[SlotSpread]) -> None:
        rows, job, servers = self.rows, self.job, self.facts.cluster.servers
        self.on = {slot: dict[int, int]() for slot in self.slots}
        for slot, own in self.on.items():
            for g, (name, s) in enumerate(rows.gpus):
                if self.facts.may_hold(slot, s):
                    own[g] = rows.variable(("on", job.name, slot, name), 0, 1)
        self.spreads = [
            (rows.variable(("spread", job.name, tuple(servers[s].name for s in spread.servers)), 0, 1), spread)
            for spread in spreads
        ]
        rows.equal([(1, m) for m, _ in self.spreads], 1)
        for number, own in enumerate(self.on.values()):
            rows.equal([(1, v) for v in own.values()], 1)
            for s in dict.fromkeys(rows.gpus[g][1] for g in own):
                here = [(1, v) for g, v in own.items() if rows.gpus[g][1] == s]
                rows.equal([*here, *((-1, m) for m, spread in self.spreads if spread.servers[number] == s)], 0)
        for g in range(len(rows.gpus)):
            rows.at_most([(1, own[g]) for own in self.on.values() if g in own], 1)

    def _operations(self) -> None:
        """Let each operation last as long as it does where its slots are, and use the links there."""
        rows, name, links = self.rows, self.job.name, self.facts.cluster.links
        for x, operation in enumerate(self.facts.names):
            own = [(spread.lengths[x], m) for m, spread in self.spreads]
            shortest, longest = min(own, default=(0, 0))[0], max(own, default=(0, 0))[0]
            self.lengths.append(rows.variable(("length", name, operation), shortest, longest))
            rows.equal([(-1, self.lengths[x]), *own], 0)
            for link in sorted({link for _, spread in self.spreads for link in spread.links[x]}):
                self.uses[x, link] = rows.variable(("uses", name, operation, links[link].name), 0, 1)
                over = [(1, m) for m, spread in self.spreads if link in spread.links[x]]
                rows.equal([*over, (-1, self.uses[x, link])], 0)
            for i in self.iterations:
                start = rows.variable(("start", name, i, operation), self.low, self.high)
                done = rows.variable(("done", name, i, operation), self.low, self.high)
                rows.equal([(1, done), (-1, start), (-1, self.lengths[x])], 0)
                self.times[i, x] = (start, done)

    def _group(self, slot: tuple[str, ...], operations: Collection[int]) -> tuple[list[int], list[int]]:
        """Return begins and ends of iterations, of a slot or of all operations, which the barrier may separate."""
        rows, name = self.rows, self.job.name
        begins = [rows.variable(("begin", name, i, *slot), self.low, self.high) for i in self.iterations]
        ends = [rows.variable(("end", name, i, *slot), self.low, self.high) for i in self.iterations]
        for i, begin, end in zip(self.iterations, begins, ends, strict=True):
            for x in operations:
                rows.no_later(begin, self.times[i, x][0])
                rows.no_later(self.times[i, x][1], end)
        if self.job.shape.barrier == ("slot" if slot else "job"):
            rows.in_turn(begins, ends)
        return begins, ends

    def _slots(self) -> None:
        """Let the blocks of each slot follow one another, and count starts from those of the first slot."""
        for slot in self.slots:
            blocks = self.facts.blocks_of(slot)
            begins, ends = self._group((slot,), blocks)
            for begin, end in zip(begins, ends, strict=True):
                self.rows.at_most([(1, begin), (-1, end), *((1, self.lengths[x]) for x in blocks)], 0)
            if not self.rows.finite and slot == self.slots[0]:
                self.rows.at_most([(-1, begins[0])], 0)
                self.rows.at_most([(1, begins[0])], self.rows.limit - 1 if self.number else 0)

    def _edges(self) -> None:
        edges = self.facts.edges | {(x, x, 1) for x in range(len(self.facts.names))}
        for before, after, lag in sorted(edges):
            for i in self.iterations:
                turns, later = divmod(i + lag - 1, self.job.iterations)
                if not turns or not self.rows.finite:
                    start = self.times[later + 1, after][0]
                    self.rows.no_later(self.times[i, before][1], start, -turns * self.rows.limit)

    def _copies(self) -> None:
        """Let components of the task graph that are alike start in their order."""
        for alike in self.facts.components_alike():
            for one, other in pairwise(alike):
                self.rows.at_most([(1, self.times[1, one[0]][0]), (-1, self.times[1, other[0]][0])], 0)

    def order_values(self, one: ResourceUse, other: ResourceUse) -> tuple[int, int]:
        """Return the least and largest value of the order of two operations of the job."""
        (_, i, x), (_, k, y) = one.order, other.order
        assert isinstance(i, int) and isinstance(k, int)
        first, second = self.facts.number[str(x)], self.facts.number[str(y)]
        apart = self.facts.are_separated(first, second)
        leads = (second in self.after(first) or apart) if i < k else second in self.after(first)
        low, high = (0, 1) if self.rows.finite or apart else (-2 * self.reach, 2 * self.reach)
        if leads:
            return (1, 1) if self.rows.finite else (low, 0)
        if i == k and first in self.after(second):
            return (0, 0) if self.rows.finite else (1, high)
        return low, high

    def block_uses(self, slot: str, present: int) -> list[ResourceUse]:
        """Return the blocks of a slot, in order of iterations, which use a resource where a variable is 1."""
        return [self._use(i, x, present) for i in self.iterations for x in self.facts.blocks_of(slot)]

    def _use(self, i: int, x: int, present: int) -> ResourceUse:
        order = (self.job.name, i, self.facts.names[x])
        return ResourceUse(present, *self.times[i, x], order, self.number, self.lengths[x])

    def as_a_whole(self, present: int) -> ResourceUse:
        """Return the job as one operation, from its begin to its end, on a GPU where a variable is 1."""
        return ResourceUse(present, self.begins[0], self.ends[-1], (self.job.name,), self.number)

    def slot_uses(self) -> Iterator[list[ResourceUse]]:
        """Yield the blocks of each slot, which are on one GPU wherever that is."""
        for slot in self.slots:
            yield self.block_uses(slot, self.rows.variable(("slot", self.job.name, slot), 1, 1))

    def gpu_uses(self) -> Iterator[tuple[int, ResourceUse]]:
        """Yield each GPU with each block that may be there."""
        for slot, own in self.on.items():
            for g, on in own.items():
                for use in self.block_uses(slot, on):
                    yield g, use

    def link_uses(self) -> Iterator[tuple[int, ResourceUse]]:
        """Yield each link with each transfer that may use it and always takes time."""
        for i in self.iterations:
            for (x, link), present in self.uses.items():
                if self.rows.low[self.lengths[x]]:
                    yield link, self._use(i, x, present)

    def gpu_work(self, g: int) -> list[Term]:
        """Return terms that add up to a time that the blocks of all iterations keep a GPU."""
        return [(self._slot_work(slot, self.rows.gpus[g][1]), own[g]) for slot, own in self.on.items() if g in own]

    def _slot_work(self, slot: str, server: int) -> int:
        own = self.facts.cluster.servers[server].gpu_type
        blocks = (self.job.shape.blocks[x] for x in self.facts.blocks_of(slot))
        return self.job.iterations * sum(block.duration_us[own] for block in blocks)

    @property
    def work(self) -> int:
        """Least time of the blocks of all iterations on all GPUs."""
        held = {slot: {self.rows.gpus[g][1] for g in own} for slot, own in self.on.items()}
        return sum(min((self._slot_work(slot, s) for s in servers), default=0) for slot, servers in held.items())

    def link_work(self, link: int) -> list[Term]:
        """Return terms that add up to the time of the transfers of all iterations on a link."""
        found = list[Term]()
        for m, spread in self.spreads:
            once = sum(length for length, over in zip(spread.lengths, spread.links, strict=True) if link in over)
            if once:
                found.append((self.job.iterations * once, m))
        return found

    def used_links(self) -> set[int]:
        """Return the links that some spread uses."""
        return {link for _, spread in self.spreads for over in spread.links for link in over}

    def alike(self, g: int) -> list[tuple[int, int]]:
        """Return the variables `on` of a GPU and of the next one of its server."""
        return [(own[g], own[g + 1]) for own in self.on.values() if g in own]

    def alike_levels(self, g: int) -> list[tuple[int, int]]:
        """Return nothing, since slots have no levels."""
        return []

    def bytes_on(self, g: int) -> list[tuple[int, int, int]]:
        """Return, of each slot, a variable that is 1 where it is on a GPU, its memory, and 0 for activations."""
        return [(own[g], self.facts.memory[slot], 0) for slot, own in self.on.items() if g in own]

    def peaks_on(self, g: int) -> list[tuple[int, int]]:
        """Return, of each slot with memory intervals, a variable that is 1 where it is on a GPU, and their peak."""
        return [(own[g], self.peaks[slot]) for slot, own in self.on.items() if g in own and slot in self.peaks]

    def add_intervals(self, orders: Mapping[Name, int]) -> None:
        """Add up what memory intervals of a slot hold at each start of a block, by the orders of its blocks."""
        rows, servers = self.rows, self.facts.cluster.servers
        most = max(server.gpu_memory for server in servers)
        for slot, own in self.on.items():
            held = self.facts.intervals_of(slot)
            if not held:
                continue
            peak = self.peaks[slot] = rows.variable(("peak", self.job.name, slot), 0, most)
            for k, x in product(self.iterations, dict.fromkeys(each.start for _, each in held)):
                here = list[Term]()
                for i in self.iterations if self.job.shape.barrier == "none" else (k,):
                    for v, each in held:
                        here.append((1, rows.variable(("holds", self.job.name, i, v, k, x), 0, most)))
                        turns = self._turn(orders, (i, each.start), (k, x)), self._turn(orders, (k, x), (i, each.end))
                        terms = [(-each.bytes * factor, order) for own_terms, _ in turns for factor, order in own_terms]
                        copies = 1 - sum(more for _, more in turns)
                        rows.at_most([*terms, (-1, here[-1][1])], -each.bytes * copies)
                rows.at_most([*here, (-1, peak)], 0)
            if rows.finite:
                rooms = [(-servers[rows.gpus[g][1]].gpu_memory, on) for g, on in own.items()]
                rows.at_most([(1, peak), *rooms], -self.facts.memory[slot])

    def _turn(self, orders: Mapping[Name, int], one: tuple[int, str], other: tuple[int, str]) -> tuple[list[Term], int]:
        """Return terms and a number that add up to how many periods later the other block starts no sooner.

        Finite: whether it starts sooner.
        """
        if one == other:
            return [], 0
        forward = ("order", self.job.name, *one, self.job.name, *other)
        if forward in orders:
            return ([(-1, orders[forward])], 1) if self.rows.finite else ([(1, orders[forward])], 0)
        backward = orders["order", self.job.name, *other, self.job.name, *one]
        return ([(1, backward)], 0) if self.rows.finite else ([(-1, backward)], 1)
