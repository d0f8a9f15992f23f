"""Placement: a GPU for every worker, by load where memory is ample, by memory where it is tight.

Jobs are placed one after the other. `balanced` puts each where the most loaded GPU, the most
loaded link and the job's own critical path stay least, preferably inside one server. `packed` fills
GPUs by memory (best fit). `exact` backtracks over both, for small instances only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import combinations, islice

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.costs import levels_within
from jigsaw_opt.solvers.placement.layout import Demand, Layout, exchange_us, iteration_us
from jigsaw_opt.solvers.placement.levels import level_plan

Placement = list[list[int]]
"""GPUs of each job's slots, by job."""

_SMALL_CLUSTER = 16
"""Servers up to which a job may spread over any of them: each of them begins a choice that looks at all others."""
_ANCHORS = 12
"""Servers on a larger cluster around which GPUs are gathered for a job: the least used ones, which are best."""
_BACKTRACK_STEPS, _FEW_STEPS = 20_000, 2_000
"""Sets of GPUs after which backtracking is given up: their number grows exponentially with the jobs. Fewer are tried
where jobs that have no place at once may follow one another."""


class _Board:
    """Loads and memory that the jobs placed so far take of every GPU and link."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        count = len(layout.gpus)
        self.load = list(layout.load)
        self.room = list(layout.memory)
        self.activations = [0] * count
        self.server_load = [sum(self.load[g] for g in gpus) // len(gpus) for gpus in layout.on_server]
        self.server_traffic = [0] * len(layout.servers)
        self.link_load = [0] * layout.links
        self._alone: dict[tuple[int, int, int, tuple[str, ...]], tuple[int, int]] = {}

    def choose(self, demand: Demand, gpus: Sequence[int]) -> list[int] | None:
        """Return the first of `gpus` that have room for the levels in need, or None.

        The deepest level takes the first GPU with room for it. GPUs with room for a deep level have room
        for a shallow one, so this finds a choice whenever there is one.
        """
        activations, state = demand.job.activation_bytes, demand.job.state_bytes
        rooms = [(gpu, self.room[gpu] - state) for gpu in gpus]
        left = [(gpu, room) for gpu, room in rooms if room >= self.activations[gpu]]
        if len(left) < len(demand.need):
            return None
        chosen = []
        for level in demand.need:
            least = activations[level - 1]
            for index, (gpu, room) in enumerate(left):
                if room >= least:
                    chosen.append(gpu)
                    del left[index]
                    break
            else:
                return None
        return chosen

    def use(self, server: int) -> int:
        """Return the mean load of the server's GPUs, or the time for which its jobs use links if that is more."""
        return max(self.server_load[server], self.server_traffic[server])

    def add(self, demand: Demand, gpus: Sequence[int], channel: Channel) -> None:
        """Place a job."""
        layout, job = self.layout, demand.job
        for gpu, level in zip(gpus, demand.need, strict=True):
            slot_us = demand.slot_us[layout.type_of[gpu]]
            self.load[gpu] += slot_us
            self.server_load[layout.server_of[gpu]] += slot_us // len(layout.on_server[layout.server_of[gpu]])
            if not layout.in_time:
                self.room[gpu] -= job.state_bytes
                self.activations[gpu] = max(self.activations[gpu], job.activation_bytes[level - 1])
        if channel.links:
            exchange, _ = self._alone_us(demand, gpus, channel)
            for link in channel.links:
                self.link_load[link] += exchange
            for server in {layout.server_of[gpu] for gpu in gpus}:
                self.server_traffic[server] += exchange

    def cost(self, demand: Demand, gpus: Sequence[int], channel: Channel) -> tuple[int, int, int]:
        """Return the peak of GPU load, link load and critical path with the job on these GPUs.

        Links used; total load.
        """
        slot_us, types = demand.slot_us, self.layout.type_of
        after = [self.load[gpu] + slot_us[types[gpu]] for gpu in gpus]
        exchange, path = self._alone_us(demand, gpus, channel)
        peak = max(0, *after, *[self.link_load[link] + exchange for link in channel.links])
        return peak, path + len(channel.links), sum(after)

    def _alone_us(self, demand: Demand, gpus: Sequence[int], channel: Channel) -> tuple[int, int]:
        """Return exchange time and length of the job over the horizon without contention, from its first iteration."""
        kinds = [self.layout.type_of[gpu] for gpu in gpus]
        key = (id(demand), channel.rate, channel.latency_us, tuple(sorted(kinds)))
        if key not in self._alone:
            job, row = demand.job, demand.rows[0]
            exchange = exchange_us(job, row, channel)
            tables = [block.duration_us[kind] for block, kind in zip(job.blocks, kinds, strict=True)]
            path = iteration_us(tables, row, exchange)
            self._alone[key] = job.iterations * sum(exchange), job.iterations * path
        return self._alone[key]


class _Servers:
    """The least loaded server for each demand, found without looking at all of them.

    Loads only grow and room only shrinks, so a stale key is a lower bound and a server without
    room for a demand never has room again.
    """

    def __init__(self, board: _Board) -> None:
        self.board = board
        self._heaps: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def best(self, demand: Demand) -> Iterator[list[int]]:
        """Yield, for each GPU type, the GPUs of the least loaded server that holds the whole job."""
        for kind in demand.slot_us:
            gpus = self._top(demand, self._heap(demand, kind))
            if gpus is not None:
                yield gpus

    def _heap(self, demand: Demand, kind: str) -> list[tuple[int, int]]:
        key = (id(demand), kind)
        if key not in self._heaps:
            servers = enumerate(self.board.layout.servers)
            slots = demand.job.slots
            heap = [(0, index) for index, s in servers if s.gpu_type == kind and s.gpus >= slots]
            self._heaps[key] = heap
            heapify(heap)
        return self._heaps[key]

    def _top(self, demand: Demand, heap: list[tuple[int, int]]) -> list[int] | None:
        board, load = self.board, self.board.load
        while heap:
            stale, server = heap[0]
            gpus = board.choose(demand, sorted(board.layout.on_server[server], key=load.__getitem__))
            if gpus is None:
                heappop(heap)
                continue
            key = max(load[gpu] for gpu in gpus)
            if key <= stale:
                return gpus
            heapreplace(heap, (key, server))
        return None


def balanced(layout: Layout, jobs: Sequence[Demand], order: Iterable[int]) -> Placement | None:
    """Place the jobs in order, each where it costs least; return None where one finds no room.

    `order`: indices of the jobs, in the order in which they are placed.
    """
    board = _Board(layout)
    servers = _Servers(board)

    def cheapest(demand: Demand) -> tuple[list[int], Channel] | None:
        choices = list(servers.best(demand))
        if demand.job.slots > 1 and (not choices or len(layout.servers) <= _SMALL_CLUSTER):
            choices += _across(board, demand)
        return _cheapest(board, demand, choices)

    return _one_by_one(board, jobs, order, cheapest)


def packed(layout: Layout, jobs: Sequence[Demand], order: Iterable[int]) -> Placement | None:
    """Place the jobs in order, each on the GPUs with least room that admit it; return None where one finds none.

    `order`: indices of the jobs, in the order in which they are placed.
    """
    board = _Board(layout)

    def fullest(demand: Demand) -> tuple[list[int], Channel] | None:
        gpus = sorted(range(len(layout.gpus)), key=board.room.__getitem__)
        return _first_joined(board, demand, [g for g in gpus if layout.type_of[g] in demand.slot_us])

    return _one_by_one(board, jobs, order, fullest)


def _one_by_one(
    board: _Board,
    jobs: Sequence[Demand],
    order: Iterable[int],
    choose: Callable[[Demand], tuple[list[int], Channel] | None],
) -> Placement | None:
    """Place the jobs in order after those that are held, each on the GPUs chosen for it; None where there are none."""
    placement: Placement = [[] for _ in jobs]
    held = board.layout.held
    for index, gpus in held.items():
        placement[index], joined = [*gpus], board.layout.channel(jobs[index].job, gpus)
        if joined is None:
            return None
        board.add(jobs[index], gpus, joined)
    for index in checking_deadline(index for index in order if index not in held):
        best = choose(jobs[index])
        if best is None:
            return None
        placement[index], channel = best
        board.add(jobs[index], placement[index], channel)
    return placement


def exact(layout: Layout, jobs: Sequence[Demand], order: Iterable[int], is_needed: bool = True) -> Placement | None:
    """Backtrack over all sets of GPUs; return None where no placement is found within a limit of steps.

    `order`: indices of the jobs, in the order in which they are placed.
    """
    placement: Placement = [[] for _ in jobs]
    state = [0] * len(layout.gpus)
    steps = iter(range(_BACKTRACK_STEPS if is_needed else _FEW_STEPS))

    def admits(placed: Sequence[int]) -> bool:
        caps = (level_caps(layout, jobs[index], placement[index], state) for index in placed)
        return all(
            level_plan(jobs[index].job, jobs[index].rows, cap) is not None
            for index, cap in zip(placed, caps, strict=True)
        )

    def place(placed: list[int], left: list[int]) -> bool:
        if not left:
            return True
        index, demand = left[0], jobs[left[0]]
        for gpus in checking_deadline(_sets(layout, demand, state)):
            if next(steps, None) is None:
                return False
            placement[index] = list(gpus)
            _shift(state, gpus, demand.job.state_bytes)
            touched = [other for other in placed if not set(gpus).isdisjoint(placement[other])]
            if admits([index, *touched]) and place([*placed, index], left[1:]):
                return True
            _shift(state, gpus, -demand.job.state_bytes)
        return False

    return placement if place([], list(order)) else None


def level_caps(layout: Layout, demand: Demand, gpus: Sequence[int], state: Sequence[int]) -> list[int]:
    """Return the deepest level that memory admits at each slot, 0 for none."""
    activations, own = demand.job.activation_bytes, demand.job.state_bytes
    taken = [own if layout.in_time else state[gpu] for gpu in gpus]
    return [levels_within(activations, layout.memory[gpu] - size) for gpu, size in zip(gpus, taken, strict=True)]


def resident(layout: Layout, jobs: Sequence[Demand], placement: Placement) -> list[int]:
    """Return the bytes of weights, gradients and optimiser state on each GPU.

    `placement`: GPUs of each job's slots, by job.
    """
    state = [0] * len(layout.gpus)
    for demand, gpus in zip(jobs, placement, strict=True):
        _shift(state, gpus, demand.job.state_bytes)
    return state


def _shift(state: list[int], gpus: Sequence[int], size: int) -> None:
    for gpu in gpus:
        state[gpu] += size


def _sets(layout: Layout, demand: Demand, state: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return all sets of GPUs of the right types that routes join, emptiest GPUs first."""
    gpus = sorted((g for g in range(len(layout.gpus)) if layout.type_of[g] in demand.slot_us), key=state.__getitem__)
    routes = layout.routes.under(demand.job.route_policy)
    return (
        chosen
        for chosen in combinations(gpus, demand.job.slots)
        if routes.all_joined({layout.server_of[gpu] for gpu in chosen})
    )


def _across(board: _Board, demand: Demand) -> Iterator[list[int]]:
    """Yield choices that may spread over servers: near each other, and in a small cluster the least loaded of all."""
    layout, load = board.layout, board.load
    small = len(layout.servers) <= _SMALL_CLUSTER
    usable = [s for s, server in enumerate(layout.servers) if server.gpu_type in demand.slot_us]
    anchors = sorted(usable, key=board.use)
    found = (
        layout.around(
            anchor,
            demand.job,
            lambda ring: sorted((s for s in ring if layout.servers[s].gpu_type in demand.slot_us), key=board.use),
            lambda server: sorted(layout.on_server[server], key=load.__getitem__),
            lambda gpus: board.choose(demand, gpus),
        )
        for anchor in anchors
    )
    yield from islice((gpus for gpus in found if gpus is not None), len(anchors) if small else _ANCHORS)
    inside = sorted((g for s in usable for g in layout.on_server[s]), key=load.__getitem__) if small else ()
    for joined in layout.cliques(demand.job, inside):
        gpus = board.choose(demand, joined)
        if gpus is not None:
            yield gpus


def _cheapest(board: _Board, demand: Demand, choices: Iterable[list[int]]) -> tuple[list[int], Channel] | None:
    best: tuple[tuple[int, int, int], list[int], Channel] | None = None
    for gpus in choices:
        channel = board.layout.channel(demand.job, gpus)
        if channel is None:
            continue
        cost = board.cost(demand, gpus, channel)
        if best is None or cost < best[0]:
            best = cost, gpus, channel
    return None if best is None else best[1:]


def _first_joined(board: _Board, demand: Demand, gpus: Sequence[int]) -> tuple[list[int], Channel] | None:
    """Return the first choice among `gpus` on servers that routes join, in the order of `gpus`."""
    for joined in board.layout.cliques(demand.job, gpus):
        chosen = board.choose(demand, joined)
        channel = board.layout.channel(demand.job, chosen) if chosen is not None else None
        if chosen is not None and channel is not None:
            return chosen, channel
    return None
