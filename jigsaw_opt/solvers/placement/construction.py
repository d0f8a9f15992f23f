"""Rules that place jobs one after the other: by load where memory is ample, by memory where it is tight.

`balanced` puts each where the most loaded GPU, the most loaded link and the job's own critical path stay least,
preferably inside one server. `packed` fills GPUs by memory (best fit). `exact` backtracks over both, for small
instances only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain, combinations, islice

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.state import PartialPlacement

_SMALL_CLUSTER = 16
"""Servers up to which a job may spread over any of them: each of them begins a choice that looks at all others."""
_ANCHORS = 12
"""Servers on a larger cluster around which GPUs are gathered for a job: the least used ones, which are best."""
_BACKTRACK_STEPS, _FEW_STEPS = 20_000, 2_000
"""Sets of GPUs after which backtracking is given up: their number grows exponentially with the jobs. Fewer are tried
where jobs that have no place at once may follow one another."""


def balanced(data: ProblemData, order: Iterable[int]) -> PartialPlacement | None:
    """Place the jobs in order, each where it costs least; return None where one finds no room.

    `order`: indices of the jobs, in the order in which they are placed.
    """
    placement = PartialPlacement(data)
    servers = _Servers(placement)
    for index in checking_deadline(order):
        choices = list(servers.best(index))
        if data.operations.jobs[index].slots > 1 and (not choices or len(data.layout.servers) <= _SMALL_CLUSTER):
            choices += _across(placement, index)
        found = filter(None, (placement.assignment(index, gpus) for gpus in choices))
        best = min(found, key=lambda assignment: _cost(placement, assignment), default=None)
        if best is None:
            return None
        placement.place(index, best)
    return placement


def packed(data: ProblemData, order: Iterable[int]) -> PartialPlacement | None:
    """Place the jobs in order, each on the GPUs with least room that admit it; return None where one finds none.

    `order`: indices of the jobs, in the order in which they are placed.
    """
    placement, layout = PartialPlacement(data), data.layout
    for index in checking_deadline(order):
        fullest = sorted(_usable(data, index), key=lambda gpu: layout.memory[gpu] - placement.state[gpu])
        joined = (placement.chosen(index, gpus) for gpus in layout.cliques(data.operations.jobs[index], fullest))
        found = (placement.assignment(index, gpus) for gpus in joined if gpus is not None)
        first = next(filter(None, found), None)
        if first is None:
            return None
        placement.place(index, first)
    return placement


def exact(data: ProblemData, order: Iterable[int]) -> PartialPlacement | None:
    """Backtrack over all sets of GPUs; return None where no placement is found within a limit of steps.

    `order`: indices of the jobs, in the order in which they are placed.
    """
    placement = PartialPlacement(data, rigid=False)
    steps = iter(range(_FEW_STEPS if data.operations.has_scarce_memory else _BACKTRACK_STEPS))

    def place(left: Sequence[int]) -> bool:
        if not left:
            return True
        for gpus in checking_deadline(_sets(placement, left[0])):
            if next(steps, None) is None:
                return False
            assignment = placement.assignment(left[0], gpus)
            if assignment is not None:
                placement.place(left[0], assignment)
                if place(left[1:]):
                    return True
                placement.unplace(left[0])
        return False

    return placement if place([*order]) else None


class _Servers:
    """The least loaded server for each demand, found without looking at all of them.

    Loads only grow and room only shrinks, so a stale key is a lower bound and a server without
    room for a demand never has room again.
    """

    def __init__(self, placement: PartialPlacement) -> None:
        self.placement, self.layout = placement, placement.data.layout
        self._heaps: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def best(self, index: int) -> Iterator[list[int]]:
        """Yield, for each GPU type, the GPUs of the least loaded server that holds the whole job."""
        demand = self.placement.demands[index]
        for kind in demand.slot_us:
            key = (id(demand), kind)
            if key not in self._heaps:
                servers, slots = enumerate(self.layout.servers), demand.job.slots
                self._heaps[key] = [(0, s) for s, server in servers if server.gpu_type == kind and server.gpus >= slots]
                heapify(self._heaps[key])
            gpus = self._top(index, self._heaps[key])
            if gpus is not None:
                yield gpus

    def _top(self, index: int, heap: list[tuple[int, int]]) -> list[int] | None:
        load = self.placement.gpu_us
        while heap:
            stale, server = heap[0]
            gpus = self.placement.chosen(index, sorted(self.layout.on_server[server], key=load.__getitem__))
            if gpus is None:
                heappop(heap)
                continue
            key = max(load[gpu] for gpu in gpus)
            if key <= stale:
                return gpus
            heapreplace(heap, (key, server))
        return None


def _usable(data: ProblemData, index: int) -> list[int]:
    """Return the GPUs of the types that a job may have."""
    kinds = data.demands[index].slot_us
    return [gpu for gpu, kind in enumerate(data.layout.type_of) if kind in kinds]


def _sets(placement: PartialPlacement, index: int) -> Iterator[tuple[int, ...]]:
    """Return all sets of GPUs of the right types that routes join, emptiest GPUs first."""
    job, server_of = placement.data.operations.jobs[index], placement.data.layout.server_of
    routes = placement.data.layout.routes.under(job.route_policy)
    gpus = sorted(_usable(placement.data, index), key=placement.state.__getitem__)
    chosen = combinations(gpus, job.slots)
    return (own for own in chosen if routes.all_joined({server_of[gpu] for gpu in own}))


def _across(placement: PartialPlacement, index: int) -> Iterator[list[int]]:
    """Yield choices that may spread over servers: near each other, and in a small cluster the least loaded of all."""
    data, layout = placement.data, placement.data.layout
    gpus, small = _usable(data, index), len(layout.servers) <= _SMALL_CLUSTER
    usable = dict.fromkeys(layout.server_of[gpu] for gpu in gpus)
    anchors = sorted(usable, key=placement.use)
    near = filter(None, (placement.around(index, usable, anchor) for anchor in anchors))
    inside = sorted(gpus, key=placement.gpu_us.__getitem__) if small else ()
    least = (placement.chosen(index, joined) for joined in layout.cliques(data.operations.jobs[index], inside))
    return chain(near if small else islice(near, _ANCHORS), filter(None, least))


def _cost(placement: PartialPlacement, assignment: Assignment) -> tuple[int, int, int]:
    """Return the peak of GPU load, link load and critical path with the job there; links used; total load."""
    iterations, links = assignment.job.iterations, assignment.links
    slots = zip(assignment.gpus, assignment.slot_us, strict=True)
    after = [placement.gpu_us[gpu] + slot_us * iterations for gpu, slot_us in slots]
    peak = max([*after, *[placement.link_us[link] + assignment.exchange_us for link in links]])
    return peak, assignment.iteration_us * iterations + len(links), sum(after)
