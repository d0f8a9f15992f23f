"""Who is where: memory and expected load of every GPU and link, without a timetable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.pieces import PieceGraph, Pieces
from jigsaw_opt.solvers.greedy.layout import Demand, Layout, exchange_us, iteration_us, mean_us, shapes
from jigsaw_opt.solvers.greedy.levels import LevelPlan, Levels, level_plan
from jigsaw_opt.solvers.greedy.placed import PlacedJob, loads_us
from jigsaw_opt.solvers.greedy.placement import Placement, level_caps, resident

__all__ = ["Ground", "Loads", "fullest_us"]

_MOST_SPOTS = 10_000
"""So many spots are remembered; on small clusters the same ones come again and again."""


class Ground:
    """An instance as the search sees it: layout, demands, and what it has worked out about spots.

    Parameters
    ----------
    pieces
        The instance, cut.
    layout
        Its GPUs.
    demands
        What each job asks for.
    """

    def __init__(self, pieces: Pieces, layout: Layout, demands: Sequence[Demand]) -> None:
        self.pieces, self.layout, self.demands = pieces, layout, demands
        self._channels: dict[tuple[int, ...], Channel | None] = {}
        self._levels: dict[tuple[int, tuple[int, ...]], LevelPlan | None] = {}
        self._exchange: dict[tuple[int, Levels, int, int], tuple[int, ...]] = {}
        self._lengths: dict[tuple[object, ...], int] = {}
        self._spots: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], PlacedJob | None] = {}
        self._shapes: dict[int, tuple[Demand, ...]] = {}
        self.of_width: dict[int, list[int]] = {}
        for index, job in enumerate(pieces.jobs):
            self.of_width.setdefault(job.slots, []).append(index)
        self.number = {pieces.cluster.gpu_name(*gpu): n for n, gpu in enumerate(layout.gpus)}

    def channel(self, gpus: Sequence[int]) -> Channel | None:
        """Channel of a job on these GPUs."""
        server_of = self.layout.server_of
        key = tuple(sorted([server_of[gpu] for gpu in gpus]))
        if key not in self._channels:
            self._channels[key] = self.layout.channel(gpus)
        return self._channels[key]

    def ring(self, gpus: Sequence[int]) -> Channel:
        """Channel of a job that a plan has on these GPUs.

        Raises
        ------
        ValueError
            Where no path joins them.
        """
        channel = self.channel(gpus)
        if channel is None:
            raise ValueError("no path joins all servers of a job")
        return channel

    def levels(self, demand: Demand, caps: Sequence[int]) -> LevelPlan | None:
        """Levels under caps."""
        key = (id(demand), tuple(caps))
        if key not in self._levels:
            self._levels[key] = level_plan(demand.job, demand.rows, caps) if min(caps) > 0 else None
        return self._levels[key]

    def tables(self, job: PieceGraph, gpus: Sequence[int]) -> list[tuple[int, ...]]:
        """Duration of a block of a job by slot and level."""
        type_of = self.layout.type_of
        return [block.duration_us[type_of[gpu]] for block, gpu in zip(job.blocks, gpus, strict=True)]

    def caps(self, places: Placement) -> list[list[int]]:
        """Deepest level of each slot that memory admits, by job, given the GPUs of all jobs."""
        state = resident(self.layout, self.demands, places)
        jobs = zip(self.demands, places, strict=True)
        return [level_caps(self.layout, demand, gpus, state) for demand, gpus in jobs]

    def shapes(self, index: int) -> tuple[Demand, ...]:
        """The demand of a job, with its levels in every shape."""
        demand = self.demands[index]
        if id(demand) not in self._shapes:
            self._shapes[id(demand)] = shapes(demand)
        return self._shapes[id(demand)]

    def spot(self, index: int, demand: Demand, gpus: Sequence[int], caps: Sequence[int]) -> PlacedJob | None:
        """A job on these GPUs with levels under caps; None where there are none, or no path joins the GPUs."""
        key = (index, id(demand), tuple(gpus), tuple(caps))
        if key not in self._spots:
            if len(self._spots) >= _MOST_SPOTS:
                self._spots.clear()
            plan = self.levels(demand, caps)
            self._spots[key] = None if plan is None else self.placed(index, gpus, plan, caps, demand)
        return self._spots[key]

    def placed(
        self, index: int, gpus: Sequence[int], plan: LevelPlan, caps: Sequence[int], demand: Demand | None = None
    ) -> PlacedJob | None:
        """A job on these GPUs with these levels; None where no path joins them.

        Parameters
        ----------
        index
            The job.
        gpus
            GPU of each slot.
        plan, caps
            Its levels, and the deepest one of each slot.
        demand
            What the levels come from; the demand of the job unless said.
        """
        channel = self.channel(gpus)
        if channel is None:
            return None
        job, demand = self.pieces.jobs[index], demand or self.demands[index]
        tables = self.tables(job, gpus)
        exchange = [self.exchange(demand, row, channel) for row in plan.rows]
        return PlacedJob(
            demand=demand,
            job=job,
            gpus=list(gpus),
            tables=tables,
            links=channel.links,
            plan=plan,
            caps=None if min(caps) >= job.levels else list(caps),
            exchange=exchange,
            slot_us=loads_us(self.layout, demand, gpus, plan, caps, tables),
            iteration_us=mean_us(plan.rows, exchange, partial(self.iteration_us, demand, tables)),
        )

    def planned(
        self, index: int, gpus: Sequence[int], rows: Sequence[Sequence[int]], caps: Sequence[int], demand: Demand
    ) -> PlacedJob:
        """A job on the GPUs of a plan with its levels by iteration and slot.

        Raises
        ------
        ValueError
            Where no path joins them.
        """
        spot = self.placed(index, gpus, LevelPlan(tuple(map(tuple, rows)), fixed=True), caps, demand)
        if spot is None:
            raise ValueError(f"no path joins all servers of job {self.pieces.jobs[index].name}")
        return spot

    def exchange(self, demand: Demand, row: Levels, channel: Channel) -> tuple[int, ...]:
        """Durations of the transfers of an iteration, by bucket."""
        key = (id(demand), tuple(sorted(row)), channel.rate, channel.latency_us)
        if key not in self._exchange:
            self._exchange[key] = exchange_us(demand.job, row, channel)
        return self._exchange[key]

    def iteration_us(
        self, demand: Demand, tables: Sequence[Sequence[int]], row: Levels, exchange: Sequence[int]
    ) -> int:
        """Length of an iteration without contention."""
        levels = tuple(sorted(row, reverse=True))
        key = (id(demand), levels, exchange, tuple(sorted(map(id, tables))))
        if key not in self._lengths:
            self._lengths[key] = iteration_us(tables, levels, exchange)
        return self._lengths[key]


class Loads:
    """A placement under construction.

    Parameters
    ----------
    ground
        The instance.
    rigid
        Whether placed jobs keep their levels; else those that one more job leaves room for will do.

    Attributes
    ----------
    demands
        What each job asks for, its levels in the shape that they have at present.
    spots
        Spot of each job, or None.
    gpu_us, link_us
        Expected busy time over the horizon of every GPU and link.
    on_gpu, on_link
        Jobs on every GPU, with the bytes of their activations, and on every link.
    """

    def __init__(self, ground: Ground, rigid: bool = True) -> None:
        self.ground, self.rigid = ground, rigid
        self.demands = list(ground.demands)
        self.spots: list[PlacedJob | None] = [None] * len(ground.pieces.jobs)
        count = len(ground.layout.gpus)
        self.gpu_us = [0] * count
        self.link_us = [0] * ground.layout.links
        self._state = [0] * count
        self.on_gpu: list[dict[int, int]] = [{} for _ in range(count)]
        self.on_link: list[dict[int, None]] = [{} for _ in range(ground.layout.links)]

    def cap(self, index: int, gpu: int) -> int:
        """Deepest level of one more worker, of job `index`, that the memory of a GPU admits; 0 for none."""
        job, inside = self.ground.pieces.jobs[index], self.on_gpu[gpu]
        room = self.ground.layout.memory[gpu] - self._state[gpu] - job.state_bytes
        if inside and room < max(inside.values()):
            others = [other for other, size in inside.items() if size > room]
            if self.rigid or not all(self._yields(other, gpu, job.state_bytes) for other in others):
                return 0
        sizes = job.activation_bytes
        return job.levels if room >= sizes[-1] else sum(size <= room for size in sizes)

    def _yields(self, index: int, gpu: int, taken: int) -> bool:
        """Whether a placed job finds levels once so many more bytes of a GPU are taken."""
        spot = self.spots[index]
        if spot is None:
            raise ValueError(f"job {index} is not placed")
        self._state[gpu] += taken
        caps = level_caps(self.ground.layout, spot.demand, spot.gpus, self._state)
        self._state[gpu] -= taken
        return self.ground.levels(spot.demand, caps) is not None

    def spot(self, index: int, gpus: Sequence[int]) -> PlacedJob | None:
        """A job on these GPUs as memory is now; None where their types, memory or routes do not admit it."""
        demand, type_of = self.demands[index], self.ground.layout.type_of
        times = demand.slot_us
        if not all(type_of[gpu] in times for gpu in gpus):
            return None
        return self.ground.spot(index, demand, gpus, [self.cap(index, gpu) for gpu in gpus])

    def admits(self, index: int, spot: PlacedJob) -> bool:
        """Whether memory as it is now admits a job at a spot with its levels as they are."""
        deepest = [max(column) for column in zip(*spot.plan.rows, strict=True)]
        return all(self.cap(index, gpu) >= level for gpu, level in zip(spot.gpus, deepest, strict=True))

    def place(self, index: int, spot: PlacedJob, deepest: Sequence[int]) -> None:
        """Put a job on its spot; `deepest` is the largest level of each slot."""
        self.spots[index] = spot
        self.demands[index] = spot.demand
        job = self.ground.pieces.jobs[index]
        for gpu, level in zip(spot.gpus, deepest, strict=True):
            self._state[gpu] += job.state_bytes
            self.on_gpu[gpu][index] = job.activation_bytes[level - 1]
        self._weigh(index, spot, 1)

    def unplace(self, index: int) -> None:
        """Take a placed job away."""
        spot = self.spots[index]
        if spot is None:
            raise ValueError(f"job {index} is not placed")
        self.spots[index] = None
        size = self.ground.pieces.jobs[index].state_bytes
        for gpu in spot.gpus:
            self._state[gpu] -= size
            del self.on_gpu[gpu][index]
        self._weigh(index, spot, -1)

    def settled(self) -> list[PlacedJob] | None:
        """All jobs with levels that memory admits now that everyone is there; None where one finds none."""
        room = [memory - state for memory, state in zip(self.ground.layout.memory, self._state, strict=True)]
        settled = []
        for index, spot in enumerate(self.spots):
            if spot is None:
                return None
            tight = min(map(room.__getitem__, spot.gpus)) < spot.job.activation_bytes[-1]
            if tight or spot.caps is not None:
                caps = level_caps(self.ground.layout, spot.demand, spot.gpus, self._state)
                anew = self.ground.spot(index, spot.demand, spot.gpus, caps)
                if anew is None:
                    return None
                settled.append(anew)
            else:
                settled.append(spot)
        return settled

    def guests(self, server: int, index: int) -> list[int]:
        """Jobs on a server but not on all servers of job `index`."""
        spot = self.spots[index]
        inside = self.ground.layout.on_server[server]
        found = dict.fromkeys(job for gpu in inside for job in self.on_gpu[gpu])
        own = set(spot.gpus) if spot is not None else set()
        return [job for job in found if job != index and not own.intersection(self._gpus(job))]

    def _gpus(self, index: int) -> Sequence[int]:
        spot = self.spots[index]
        return () if spot is None else spot.gpus

    def _weigh(self, index: int, spot: PlacedJob, sign: int) -> None:
        times = sign * spot.job.iterations
        for gpu, slot_us in zip(spot.gpus, spot.slot_us, strict=True):
            self.gpu_us[gpu] += times * slot_us
        if spot.links:
            exchange = sign * sum(map(sum, spot.exchange))
            for link in spot.links:
                self.link_us[link] += exchange
                if sign > 0:
                    self.on_link[link][index] = None
                else:
                    del self.on_link[link][index]


def fullest_us(spots: Sequence[PlacedJob]) -> int:
    """Load of the fullest GPU or link, or length of the longest job: a period that no order of pieces beats by much."""
    gpus: dict[int, int] = {}
    links: dict[int, int] = {}
    longest = 1
    for spot in spots:
        longest = max(longest, spot.iteration_us * spot.job.iterations)
        for gpu, slot_us in zip(spot.gpus, spot.slot_us, strict=True):
            gpus[gpu] = gpus.get(gpu, 0) + slot_us * spot.job.iterations
        exchange = sum(map(sum, spot.exchange))
        for link in spot.links:
            links[link] = links.get(link, 0) + exchange
    return max(longest, *gpus.values(), *links.values())
