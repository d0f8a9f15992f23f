"""Placements: GPUs of their types with room, loads balanced, slots that exchange transfers near each other.

Data-parallel jobs are placed by `workers`, mostly once slots have their GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from random import Random

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph
from jigsaw_opt.problem.compiled.timetable import Gpu, Timetable
from jigsaw_opt.solvers.activities.flat import FlatActivities, one_iteration
from jigsaw_opt.solvers.activities.held_memory import HeldMemory, serial_order
from jigsaw_opt.solvers.placement.workers import PlacedWorkers, WorkerPlacing

_Drawn = tuple[tuple[tuple[Gpu, ...], ...], tuple[PlacedWorkers, ...]]
"""GPU of each slot, by job with a task graph; and the data-parallel jobs."""

_TRIES = 200
"""Largest number of placements that are drawn."""
_MOST_FAILED_OPERATIONS = 2_000_000
"""Once those that failed had so many operations in all, no other is drawn."""


@dataclass(frozen=True, slots=True)
class SlotPlacement:
    """GPUs of all jobs, levels, and an order for each task graph in which memory suffices.

    `gpus`: by job, data-parallel ones first, the GPU of each worker or slot. `orders`: by job with a task graph, the
    operations of one iteration in a serial order in which memory suffices. `in_time`: whether jobs follow one another
    for their memory: not all of them fit on their GPUs at once.
    """

    gpus: tuple[tuple[Gpu, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    levels: tuple[tuple[tuple[int, ...], ...], ...] = ()
    in_time: bool = False


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Jobs that have their places: data-parallel ones by number, and GPUs of slots by number of a task graph."""

    workers: Mapping[int, PlacedWorkers] = field(default_factory=dict)
    slots: Mapping[int, tuple[Gpu, ...]] = field(default_factory=dict)


_NOTHING = PlacedPart()


def placements(
    operations: Operations, seed: int, in_time: bool = False, placed: PlacedPart = _NOTHING
) -> Iterator[SlotPlacement]:
    """Yield different placements, each on GPUs that have room for all slots and in an order in which memory suffices.

    `in_time`: whether jobs may follow one another for what they hold, such as memory. `placed`: jobs that stay.
    """
    if operations.instance.scarce_capacities and not in_time:
        return
    random, placing = Random(f"placing/{seed}"), _SlotPlacing(operations, in_time, placed)
    found: set[_Drawn] = set()
    failed = 0
    for number in range(_TRIES):
        drawn = placing.draw(random, number)
        if drawn is not None and drawn not in found:
            found.add(drawn)
            placement = complete(operations, *drawn, in_time)
            if placement is not None:
                yield placement
                continue
        failed += operations.blocks + operations.transfers
        if failed > _MOST_FAILED_OPERATIONS:
            return


def complete(
    operations: Operations,
    gpus: Sequence[tuple[Gpu, ...]],
    workers: Sequence[PlacedWorkers] = (),
    in_time: bool = False,
) -> SlotPlacement | None:
    """Return slots on GPUs beside placed workers, with an order for each job; None where memory does not suffice.

    `gpus`: by job with a task graph, the GPU of each slot. `in_time`: whether jobs may follow one another where memory
    does not suffice for all at once. Each of them fits alone.
    """
    found = _complete(operations, gpus, workers, False)
    return _complete(operations, gpus, workers, True) if found is None and in_time else found


def _complete(
    operations: Operations, gpus: Sequence[tuple[Gpu, ...]], workers: Sequence[PlacedWorkers], in_time: bool
) -> SlotPlacement | None:
    """Return slots on GPUs beside all others, or each job as if alone where they follow one another."""
    loads = GpuLoads(operations)
    loads.add_workers(dict(enumerate(workers)))
    for job, own in enumerate(gpus):
        loads.add_slots(job, own)
    taken, activations = loads.states, loads.activations
    servers, orders = operations.cluster.servers, []
    if not in_time and not loads.fit:
        return None
    for graph, own in zip(operations.task_graphs, gpus, strict=True):
        room = [servers[gpu[0]].gpu_memory - taken[gpu] - activations[gpu] for gpu in own]
        if in_time:
            sizes = zip(own, graph.shape.slots, strict=True)
            room = [servers[gpu[0]].gpu_memory - slot.memory for gpu, slot in sizes]
        order = serial_order(one_iteration(graph, room))
        if order is None:
            return None
        orders.append(tuple(order))
    return SlotPlacement(
        (*(worker.gpus for worker in workers), *gpus),
        tuple(orders),
        tuple(worker.levels for worker in workers),
        in_time,
    )


class GpuLoads:
    """What placed jobs take of each GPU.

    `states`: bytes of state of workers and slots, always. `activations`: most bytes of a worker's activations, for only
    one worker runs at a time. `load`: microseconds.
    """

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self.states, self.activations, self.load = Counter[Gpu](), Counter[Gpu](), Counter[Gpu]()

    @property
    def fit(self) -> bool:
        """Whether the jobs may all be present all the time."""
        servers = self.operations.cluster.servers
        room = all(size + self.activations[gpu] <= servers[gpu[0]].gpu_memory for gpu, size in self.states.items())
        return room and not self.operations.instance.scarce_capacities

    def add_workers(self, workers: Mapping[int, PlacedWorkers]) -> None:
        """Count data-parallel jobs, by their numbers."""
        for number, own in workers.items():
            job = self.operations.jobs[number]
            for slot, (gpu, level) in enumerate(zip(own.gpus, own.deepest, strict=True)):
                table = job.blocks[slot].duration_us[self.gpu_type(gpu)]
                self.states[gpu] += job.state_bytes
                self.activations[gpu] = max(self.activations[gpu], job.activation_bytes[level - 1])
                self.load[gpu] += sum(table[row[slot] - 1] for row in own.levels)

    def add_slots(self, job: int, gpus: Sequence[Gpu]) -> None:
        """Count a job with a task graph on the GPUs of its slots."""
        graph = self.operations.task_graphs[job]
        for slot, gpu in enumerate(gpus):
            self.states[gpu] += graph.shape.slots[slot].memory
            self.load[gpu] += self.work_us(graph, slot, gpu)

    def gpu_type(self, gpu: Gpu) -> str:
        """Return the type of a GPU."""
        return self.operations.cluster.servers[gpu[0]].gpu_type

    def work_us(self, graph: CompiledTaskGraph, slot: int, gpu: Gpu) -> int:
        """Return how long the blocks of a slot take there in all iterations."""
        tables = (graph.shape.blocks[block].duration_us for block in graph.blocks_of[slot])
        return graph.job.iterations * sum(table[self.gpu_type(gpu)] for table in tables)


def fit_at_once(operations: Operations, timetable: Timetable) -> bool:
    """Return whether the data-parallel jobs of a plan may all be present all the time."""
    loads, places = GpuLoads(operations), operations.cluster.gpus.place_of
    placed = (PlacedWorkers(tuple(map(places.__getitem__, plan.gpus)), plan.levels) for plan in timetable.jobs)
    loads.add_workers(dict(enumerate(placed)))
    return loads.fit


class _SlotPlacing:
    """Data about slots and GPUs that all draws of a placement share."""

    def __init__(self, operations: Operations, in_time: bool, placed: PlacedPart) -> None:
        self.operations, self.in_time, self.placed, cluster = operations, in_time, placed, operations.cluster
        self.gpus = cluster.gpus.places
        self.needs = [_needs(graph) for graph in operations.task_graphs]
        self.partners = [_partners(graph) for graph in operations.task_graphs]
        self.workers = WorkerPlacing(operations, in_time)

    def draw(self, random: Random, number: int) -> _Drawn | None:
        """Draw GPUs of all slots and of data-parallel jobs; return None where some found none.

        The first few draws are those without chance. Then every fourth places data-parallel jobs before slots.
        """
        plain = number < 3
        nearness = (1.0, 8.0, 0.0)[number] if plain else random.choice((0.0, 0.5, 1.0, 2.0, 8.0))
        # What memory intervals need at once is a guess; every other draw leaves it to the search for an order.
        careful = plain or number % 2 == 0
        slots = self.placed.slots
        jobs = sorted((job for job in range(len(self.needs)) if job not in slots), key=lambda job: -self._work(job))
        if not plain:
            random.shuffle(jobs)
        draw = _PlacementDraw(self, random, 0.0 if plain else random.choice((0.0, 0.1, 1.0)), nearness, careful)
        draw.add_workers(self.placed.workers)
        for job, gpus in slots.items():
            draw.put(job, gpus)
        ahead = self._place_workers(draw, random) if number % 4 == 3 else None
        found = dict(slots)
        for job in jobs:
            own = draw.place(job)
            if own is None:
                return None
            found[job] = own
        workers = ahead or self._place_workers(draw, None if plain else random)
        return None if workers is None else (tuple(found[job] for job in range(len(self.needs))), workers)

    def _place_workers(self, draw: _PlacementDraw, random: Random | None) -> tuple[PlacedWorkers, ...] | None:
        """Place data-parallel jobs beside what is placed so far, and count their memory and load."""
        known, count = self.placed.workers, len(self.operations.jobs)
        asked = [job for job in range(count) if job not in known]
        memory = {gpu: draw.memory(gpu) + draw.most_held[gpu] for gpu in self.gpus}
        placed = self.workers.place(random, asked, memory, draw.load) if asked else {}
        if placed is None:
            return None
        draw.add_workers(placed)
        return tuple((known.get(job) or placed[job]) for job in range(count))

    def _work(self, job: int) -> int:
        graph = self.operations.task_graphs[job]
        return graph.job.iterations * sum(max(block.duration_us.values()) for block in graph.shape.blocks)


class _PlacementDraw(GpuLoads):
    """One placement in the making."""

    def __init__(self, placing: _SlotPlacing, random: Random, blur: float, nearness: float, careful: bool) -> None:
        super().__init__(placing.operations)
        self.placing, self.random, self.blur, self.nearness = placing, random, blur, nearness
        self.careful = careful
        self.most_held = Counter[Gpu]()

    def memory(self, gpu: Gpu) -> int:
        """Return the bytes that are taken at once beside memory intervals: none where jobs follow one another."""
        return 0 if self.placing.in_time else self.states[gpu] + self.activations[gpu]

    def place(self, job: int) -> tuple[Gpu, ...] | None:
        """Return GPUs of the slots of a job, in the part of the cluster with least load; None where none has room."""
        component = self.placing.operations.routes.component
        found = []
        for part in sorted(set(component)):
            gpus = self._in_part(job, [gpu for gpu in self.placing.gpus if component[gpu[0]] == part])
            if gpus is not None:
                found.append((max(self.load[gpu] for gpu in gpus), self.random.random(), gpus))
        if not found:
            return None
        gpus = min(found)[2]
        self.put(job, gpus)
        return gpus

    def put(self, job: int, gpus: Sequence[Gpu]) -> None:
        """Count the load and the memory of a job on GPUs of its slots."""
        self.add_slots(job, gpus)
        for slot, gpu in enumerate(() if self.placing.in_time else gpus):
            self.most_held[gpu] = max(self.most_held[gpu], self._need(job, slot))

    def _in_part(self, job: int, gpus: Sequence[Gpu]) -> tuple[Gpu, ...] | None:
        graph = self.placing.operations.task_graphs[job]
        chosen: dict[int, Gpu] = {}
        allowed = [[gpu for gpu in gpus if self._has_room(job, slot, gpu)] for slot in range(len(graph.shape.slots))]
        # Slots with fewest GPUs to choose from go first; else they stay in their order, which mostly is the chain.
        scarce = sorted(range(len(allowed)), key=lambda slot: len(allowed[slot]))
        whole = self._whole_server(job, allowed)
        for slot in scarce:
            free = [gpu for gpu in allowed[slot] if gpu not in chosen.values() and (whole is None or gpu[0] == whole)]
            if graph.job.route_policy is not None:
                free = [gpu for gpu in free if self._joined(graph, gpu, chosen.values())]
            if not free:
                return None
            # GPUs of a server are alike but for their load.
            # Reversed twice, the first of equal GPUs stays, and the order remains that of the cluster.
            unlike = {(gpu[0], self.load[gpu]): gpu for gpu in reversed(free)}
            chosen[slot] = min(reversed(unlike.values()), key=lambda gpu: self._cost(job, slot, gpu, chosen))
        return tuple(chosen[slot] for slot in range(len(allowed)))

    def _joined(self, graph: CompiledTaskGraph, gpu: Gpu, others: Iterable[Gpu]) -> bool:
        """Return whether routes that keep the policy of the job join a GPU to others of its slots."""
        routes = self.placing.operations.routes.under(graph.job.route_policy)
        return all(gpu[0] == server or routes.between(gpu[0], server) is not None for server, _ in others)

    def _whole_server(self, job: int, allowed: Sequence[Sequence[Gpu]]) -> int | None:
        """Return the server of least load with room for all slots.

        The result is None where there is no such server, or nearness does not count.
        """
        if self.nearness < 1.0 or len(allowed) < 2:
            return None
        servers = self.placing.operations.cluster.servers
        fitting = []
        for server in range(len(servers)):
            gpus = [gpu for gpu in allowed[0] if gpu[0] == server]
            if len(gpus) >= len(allowed) and all(set(gpus) <= set(own) for own in allowed):
                fitting.append((sorted(self.load[gpu] for gpu in gpus)[len(allowed) - 1], server))
        return min(fitting)[1] if fitting else None

    def _has_room(self, job: int, slot: int, gpu: Gpu) -> bool:
        graph, server = self.placing.operations.task_graphs[job], self.placing.operations.cluster.servers[gpu[0]]
        if server.gpu_type not in graph.gpu_types[slot]:
            return False
        memory = self.memory(gpu) + graph.shape.slots[slot].memory
        return memory + max(self.most_held[gpu], self._need(job, slot)) <= server.gpu_memory

    def _need(self, job: int, slot: int) -> int:
        return self.placing.needs[job][slot] if self.careful else 0

    def _cost(self, job: int, slot: int, gpu: Gpu, chosen: dict[int, Gpu]) -> tuple[float, int]:
        """Return the load of the GPU with the slot, and what transfers to slots that are placed take."""
        operations = self.placing.operations
        graph = operations.task_graphs[job]
        cost: float = self.load[gpu] + self.work_us(graph, slot, gpu)
        for other, transfers in self.placing.partners[job][slot].items():
            if other not in chosen or not self.nearness:
                continue
            for operation, count in transfers:
                channel = graph.channel(operation, (gpu[0], chosen[other][0]), operations.routes)
                if channel is not None:
                    takes = count * graph.transfer_us(operation, channel)
                    # A transfer takes time from both slots, and from others on each link that it uses.
                    cost += self.nearness * graph.job.iterations * takes * (1 + len(channel.links))
        return cost * (1 + self.blur * self.random.random()), len(chosen)


def _needs(graph: CompiledTaskGraph) -> list[int]:
    """Return, by slot, the most that its memory intervals take in an order in which memory counts."""
    flat = one_iteration(graph, [sum(hold.bytes for hold in graph.holds)] * len(graph.shape.slots))
    return most_held(flat, serial_order(flat) or ())


def most_held(flat: FlatActivities, order: Iterable[int]) -> list[int]:
    """Return, by GPU, the most that memory intervals take where activities start in an order."""
    memory, most = HeldMemory(flat), [0] * len(flat.room)
    for activity in order:
        for gpu, amount, end in flat.opens[activity]:
            if not memory.done[end]:
                most[gpu] = max(most[gpu], memory.held[gpu] + amount)
        memory.do(activity)
    return most


def _partners(graph: CompiledTaskGraph) -> list[dict[int, list[tuple[int, int]]]]:
    """Return, by slot and other slot, one of the equal transfers between them and how many these are."""
    alike: dict[tuple[int, int, int, tuple[int, ...]], list[int]] = {}
    for operation in range(graph.blocks, graph.size):
        transfer, ends = graph.shape.transfers[operation - graph.blocks], graph.takes_part[operation]
        for slot, other in permutations(ends, 2):
            alike.setdefault((slot, other, transfer.bytes, ends), []).append(operation)
    found: list[dict[int, list[tuple[int, int]]]] = [{} for _ in graph.shape.slots]
    for (slot, other, _, _), operations in alike.items():
        found[slot].setdefault(other, []).append((operations[0], len(operations)))
    return found
