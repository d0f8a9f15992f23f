"""The variables and rows of a task-graph job."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod

from .common import Document
from .table import Gpu, Name, Operation, Table, Term
from .task_graphs import Graph, Placed, components_alike, slots_of


class GraphRows:
    """The variables and rows of one job, which `add` adds."""

    ordered, tail, least_activations, takes_time = True, 0, 0, True

    def __init__(self, rows: Table, number: int, graph: Graph) -> None:
        self.rows, self.number, self.graph, self.job = rows, number, graph, graph.job
        self.name, self.barrier, n = graph.job["name"], graph.shape["barrier"], graph.job["iterations"]
        self.n, self.times = n, 1 if rows.each else n
        self.iterations = range(1, n // self.times + 1)
        self.turns = 2 if self.barrier == "job" else 2 * n * len(graph.operations)
        self.head = self.link_head = 0 if rows.cyclic else self.job["release_us"]
        servers = rows.cluster["servers"]
        self.servers = {slot: [one for one in servers if graph.may_be_on(slot, one, [])] for slot in graph.slots}
        self.begin, self.end = self.of("begin", 1), self.of("end", self.iterations[-1])
        last = min(rows.limit, self.job.get("deadline_us", rows.limit))
        around = self.turns * rows.limit
        self.range = (-around, around) if rows.cyclic else (self.job["release_us"], last)
        self.order_in_iteration = cache(self._order_in_iteration)
        self.place = {name: place for place, name in enumerate(graph.operations)}
        self.peaks: dict[str, Name] = {}
        self.has_rows = self._place()

    def _place(self) -> bool:
        """Find the spreads; return whether they and operations are few enough for rows."""
        count = len(self.graph.operations)
        if count > 1000 or count * len(self.iterations) * (len(self.rows.gpus) + 1) > 100_000:
            return False
        if prod(map(len, self.servers.values())) > 10_000:
            return False
        self.spreads = {}
        for spread in self._spreads(()):
            if len(self.spreads) == 200:
                return False
            self.spreads[spread] = Placed(self.graph, dict(zip(self.graph.slots, spread)))
        placed = self.spreads.values()
        names = {server["name"] for some in self.servers.values() for server in some}
        self.allowed = [gpu for gpu in self.rows.gpus if gpu.server["name"] in names]
        self.uses = {x: set().union(*(spread.links[x] for spread in placed)) for x in self.graph.operations}
        self.links = set().union(*self.uses.values())
        return True

    def _spreads(self, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if len(before) == len(self.servers):
            if self._keeps_caps(dict(zip(self.servers, before))):
                yield before
            return
        slot = list(self.servers)[len(before)]
        for server in self.servers[slot]:
            if self.graph.may_be_on(slot, server, before):
                yield from self._spreads((*before, server["name"]))

    def _keeps_caps(self, server_of: dict[str, str]) -> bool:
        """Return whether no block draws more there than a power cap allows."""
        types = {server["name"]: server["gpu_type"] for server in self.rows.cluster["servers"]}
        for block in self.graph.blocks.values():
            servers, watts = [server_of[slot] for slot in slots_of(block)], block.get("power_w", {})
            for cap in self.rows.cluster.get("power_caps", []):
                if sum(watts.get(types[one], 0) for one in servers if one in cap["servers"]) > cap["watts"]:
                    return False
        return True

    def of(self, what: str, *rest: object) -> Name:
        """Return the name of a variable of the job."""
        return (what, self.name, *rest)

    def _gpus_of(self, slot: str) -> list[Gpu]:
        return [gpu for gpu in self.allowed if gpu.server in self.servers[slot]]

    def slots_on(self, gpu: Gpu) -> list[str]:
        """Return the slots that may be on a GPU."""
        return [slot for slot, servers in self.servers.items() if gpu.server in servers]

    def _work(self, slot: str, gpu_type: str) -> int:
        blocks = (self.graph.blocks[name] for name in self.graph.blocks_of[slot])
        return self.n * sum(block["duration_us"][gpu_type] for block in blocks)

    def work_on(self, gpu: Gpu) -> list[Term]:
        """Return the time of all blocks on a GPU."""
        slots = self.slots_on(gpu)
        return [(self._work(slot, gpu.server["gpu_type"]), self.of("on", slot, gpu.name)) for slot in slots]

    @property
    def least_work(self) -> int:
        """The least time of all blocks, on all of their GPUs."""
        return sum(
            min((self._work(slot, server["gpu_type"]) for server in servers), default=0)
            for slot, servers in self.servers.items()
        )

    def work_on_link(self, link: str) -> list[Term]:
        """Return the time of all transfers on a link."""
        return [
            (self.n * sum(placed.duration[x] for x in self.uses if link in placed.links[x]), self.of("spread", spread))
            for spread, placed in self.spreads.items()
        ]

    def ons(self, gpu: Gpu) -> list[Name]:
        """Return the variables that say what is on a GPU."""
        return [self.of("on", slot, gpu.name) for slot in self.slots_on(gpu)]

    def levels(self, _: Gpu) -> list[Name]:
        """Return no variables, for there are no levels."""
        return []

    def states(self, gpu: Gpu) -> list[Term]:
        """Return the memory on a GPU that lasts as long as the job is present."""
        return [(self.graph.slots[slot]["memory"], self.of("on", slot, gpu.name)) for slot in self.slots_on(gpu)]

    def activations(self, _: Gpu) -> list[list[Term]]:
        """Return no activations."""
        return []

    def order(self, one: Operation, other: Operation) -> tuple[int, int]:
        """Return the least and the largest value of the order of two operations of the job on a link or a slot."""
        same_iteration = one.iteration == other.iteration
        separate, before, after = self.order_in_iteration(one.part, other.part)
        first = before or (not same_iteration and (separate or one.part == other.part))
        if self.rows.cyclic:
            low, high = (0, 1) if separate else (-2 * self.turns, 2 * self.turns)
            return (max(low, 1) if same_iteration and after else low), (min(high, 0) if first else high)
        return int(first), int(not (same_iteration and after))

    def _order_in_iteration(self, one: str, other: str) -> tuple[bool, bool, bool]:
        """Return whether the barrier separates two operations, and whether a chain leads to the other, or from it."""
        blocks = self.graph.blocks
        both = one in blocks and other in blocks and set(slots_of(blocks[one])) & set(slots_of(blocks[other]))
        separate = self.barrier == "job" or (self.barrier == "slot" and bool(both))
        return separate, other in self.graph.reached(one), one in self.graph.reached(other)

    def add(self) -> None:
        """Add all variables and rows."""
        self._add_placement()
        for i in self.iterations:
            self.rows.values[self.of("begin", i)] = self.rows.values[self.of("end", i)] = self.range
        chains = [(self._chain(placed), self.of("spread", spread)) for spread, placed in self.spreads.items()]
        self.rows.most([(1, self.begin), *chains, (-1, self.end)], 0)
        if self.rows.each:
            self._add_operations()
        if self.barrier == "job":
            self._add_barrier()

    def _chain(self, placed: Placed) -> int:
        """Return the longest chain in a spread, once for each iteration where a barrier separates all of them."""
        before = placed.before(self.graph.operations)
        longest = max(before[x] + placed.in_chains[x] for x in self.graph.operations)
        return longest * (self.n if self.barrier == "job" else 1)

    def _add_placement(self) -> None:
        rows = self.rows
        rows.values.update({self.of("spread", spread): (0, 1) for spread in self.spreads})
        rows.equal([(1, self.of("spread", spread)) for spread in self.spreads], 1)
        for place, (slot, servers) in enumerate(self.servers.items()):
            gpus = self._gpus_of(slot)
            rows.values.update({self.of("on", slot, gpu.name): (0, 1) for gpu in gpus})
            rows.equal([(1, self.of("on", slot, gpu.name)) for gpu in gpus], 1)
            for server in servers:
                there = [(1, self.of("on", slot, gpu.name)) for gpu in gpus if gpu.server is server]
                spreads = [self.of("spread", spread) for spread in self.spreads if spread[place] == server["name"]]
                rows.equal([*there, *((-1, spread) for spread in spreads)], 0)
        for gpu in self.allowed:
            rows.most([(1, name) for name in self.ons(gpu)], 1)

    def _add_barrier(self, *slot: str) -> None:
        """Add that the iterations of the job, or of a slot, follow one another."""
        for i in self.iterations[:-1]:
            self.rows.most([(1, self.of("end", i, *slot)), (-1, self.of("begin", i + 1, *slot))], 0)
        if self.rows.cyclic:
            last = self.of("end", self.iterations[-1], *slot)
            self.rows.most([(1, last), (-1, self.of("begin", 1, *slot))], self.rows.limit)

    def _add_operations(self) -> None:
        rows, values, graph = self.rows, self.rows.values, self.graph
        for x in graph.operations:
            self._add_length(x)
        for slot in graph.slots:
            values[self.of("slot", slot)] = (1, 1)
            for i in self.iterations:
                begin, end = self.of("begin", i, slot), self.of("end", i, slot)
                values[begin] = values[end] = self.range
                lengths = [(1, self.of("length", x)) for x in graph.blocks_of[slot]]
                rows.most([(1, begin), *lengths, (-1, end)], 0)
            if self.barrier == "slot":
                self._add_barrier(slot)
        for i in self.iterations:
            for x in graph.operations:
                self._add_operation(i, x)
        for slot in graph.slots:
            self._add_memory(slot)
        edges = [*graph.shape["edges"], *([x, x, 1] for x in graph.operations)]
        for before, after, lag in edges:
            for i in self.iterations:
                periods, k = divmod(i + lag - 1, self.n)
                if rows.cyclic or periods == 0:
                    waits = [(1, self.of("done", i, before)), (-1, self.of("start", k + 1, after))]
                    rows.most(waits, periods * rows.limit)
        for one, other in components_alike(graph):
            rows.most([(1, self.of("start", 1, one[0])), (-1, self.of("start", 1, other[0]))], 0)
        if rows.cyclic:
            first = self.of("begin", 1, next(iter(graph.slots)))
            rows.most([(-1, first)], 0)
            rows.most([(1, first)], rows.limit - 1 if self.number else 0)

    def _add_length(self, x: str) -> None:
        rows, length = self.rows, self.of("length", x)
        lasts = {self.of("spread", spread): placed.duration[x] for spread, placed in self.spreads.items()}
        rows.values[length] = min(lasts.values(), default=0), max(lasts.values(), default=0)
        rows.equal([(-1, length), *((time, spread) for spread, time in lasts.items())], 0)
        for link in sorted(self.uses[x]):
            rows.values[self.of("uses", x, link)] = (0, 1)
            spreads = [self.of("spread", spread) for spread, placed in self.spreads.items() if link in placed.links[x]]
            rows.equal([(1, self.of("uses", x, link)), *((-1, spread) for spread in spreads)], 0)

    def _add_operation(self, i: int, x: str) -> None:
        rows = self.rows
        start, done, length = self.of("start", i, x), self.of("done", i, x), self.of("length", x)
        rows.values[start] = rows.values[done] = self.range
        rows.equal([(1, done), (-1, start), (-1, length)], 0)
        slots = slots_of(self.graph.blocks[x]) if x in self.graph.blocks else []
        for of in ((), *((slot,) for slot in slots)):
            rows.most([(1, self.of("begin", i, *of)), (-1, start)], 0)
            rows.most([(1, done), (-1, self.of("end", i, *of))], 0)
        users = [(f"gpu {gpu.name}", self.of("on", slot, gpu.name)) for slot in slots for gpu in self._gpus_of(slot)]
        users += [(f"slot {self.name}/{slot}", self.of("slot", slot)) for slot in slots]
        if rows.values[length][0] >= 1:
            users += [(f"link {link}", self.of("uses", x, link)) for link in sorted(self.uses[x])]
        for resource, present in users:
            rows.resources[resource].append(Operation(self.number, i, x, present, start, done, length))

    def _add_memory(self, slot: str) -> None:
        """Add what the memory intervals of a slot hold at the starts of its blocks."""
        rows, intervals = self.rows, {}
        for v, interval in enumerate(self.graph.shape["holds"], 1):
            if interval["bytes"] and slot == interval.get("slot", slots_of(self.graph.blocks[interval["from"]])[0]):
                intervals[v] = interval
        if not intervals:
            return
        peak = self.peaks[slot] = self.of("peak", slot)
        rows.values[peak] = 0, rows.largest_memory
        for k in self.iterations:
            for x in sorted({interval["from"] for interval in intervals.values()}):
                held = [
                    self._add_held(v, interval, i, k, x)
                    for i in (self.iterations if self.barrier == "none" else [k])
                    for v, interval in intervals.items()
                ]
                rows.most([*((1, name) for name in held), (-1, peak)], 0)
        if not rows.cyclic:
            room = [(-gpu.server["gpu_memory"], self.of("on", slot, gpu.name)) for gpu in self._gpus_of(slot)]
            rows.most([(1, peak), *room], -self.graph.slots[slot]["memory"])

    def _add_held(self, v: int, interval: Document, i: int, k: int, x: str) -> Name:
        """Add how much a memory interval of iteration i holds at the start of a block in iteration k."""
        held, size = self.of("holds", i, v, k, x), interval["bytes"]
        self.rows.values[held] = 0, self.rows.largest_memory
        one, turn = self._turn((i, interval["from"]), (k, x))
        other, back = self._turn((k, x), (i, interval["to"]))
        turns = [(-size * factor, order) for factor, order in [*turn, *back]]
        self.rows.most([*turns, (-1, held)], size * (one + other - 1))
        return held

    def _turn(self, one: tuple[int, str], other: tuple[int, str]) -> tuple[int, list[Term]]:
        """Return the turn from a block to another of its slot, as a constant and terms."""
        if one == other:
            return 0, []
        forward = (one[0], self.place[one[1]]) < (other[0], self.place[other[1]])
        (i, x), (k, y) = (one, other) if forward else (other, one)
        order = self.of("order", i, x, self.name, k, y)
        return (0, [(1, order)]) if forward == self.rows.cyclic else (1, [(-1, order)])
