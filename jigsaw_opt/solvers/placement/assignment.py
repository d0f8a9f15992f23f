"""Placed jobs: their levels, durations and channels, computed once and cached, once every worker has its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.solvers.params import SearchParams
from jigsaw_opt.solvers.placement.construction import Placement, level_caps, resident
from jigsaw_opt.solvers.placement.layout import Demand, Layout, exchange_us, iteration_us, mean_us, shapes
from jigsaw_opt.solvers.placement.levels import LevelPlan, Levels, level_plan, mean_slot_us


@dataclass(slots=True, eq=False)
class Assignment:
    """A job on its GPUs.

    `gpus`: GPU of each slot, numbered as in `Layout`. `tables`: duration of a block by slot and level. `caps`: deepest
    level of each slot that memory admits, or None where it admits all. `exchange`: durations of the transfers by
    iteration and bucket. `slot_us`: mean GPU time of an iteration by slot. `iteration_us`: mean time of its iterations
    when no one is in the way.
    """

    demand: Demand
    job: OperationGraph
    gpus: list[int]
    tables: list[tuple[int, ...]]
    links: tuple[int, ...]
    plan: LevelPlan
    caps: list[int] | None
    exchange: list[tuple[int, ...]]
    slot_us: list[int]
    iteration_us: int


def loads_us(
    layout: Layout,
    demand: Demand,
    gpus: Sequence[int],
    plan: LevelPlan,
    caps: Sequence[int],
    tables: Sequence[Sequence[int]],
) -> list[int]:
    """Return the mean GPU time of an iteration by slot, for `Assignment.slot_us`.

    By slot, in microseconds.

    `tables`: duration of a block by slot and level, in microseconds.
    """
    if plan.fixed or min(caps) < demand.job.levels:
        return mean_slot_us(plan, caps, tables)
    return [demand.slot_us[layout.type_of[gpu]] // demand.job.iterations for gpu in gpus]


_MOST_REMEMBERED = 10_000
"""Assignments that are cached: on small clusters the same ones come repeatedly; on large ones they take some megabytes
and hardly recur."""


class ProblemData:
    """An instance, with levels, durations and channels of its jobs on GPUs, each computed once.

    `params`: parameters of the search; their defaults unless given. `of_width`: the jobs by number of workers.
    """

    def __init__(
        self,
        operations: Operations,
        demands: Sequence[Demand],
        layout: Layout | None = None,
        params: SearchParams | None = None,
    ) -> None:
        self.operations, self.layout, self.demands = operations, layout or Layout(operations), demands
        self.params = params or SearchParams()
        self._shapes: dict[int, tuple[Demand, ...]] = {}
        self.of_width: dict[int, list[int]] = {}
        for index, job in enumerate(operations.jobs):
            self.of_width.setdefault(job.slots, []).append(index)
        self._channels: dict[tuple[str | None, tuple[int, ...]], Channel | None] = {}
        self._levels: dict[tuple[int, tuple[int, ...]], LevelPlan | None] = {}
        self._exchange: dict[tuple[int, Levels, int, int], tuple[int, ...]] = {}
        self._lengths: dict[tuple[object, ...], int] = {}
        self._times: dict[tuple[object, ...], tuple[list[tuple[int, ...]], list[int], int]] = {}
        self._assignments: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], Assignment | None] = {}

    def channel(self, job: OperationGraph, gpus: Sequence[int]) -> Channel | None:
        """Return the channel of a job on GPUs, or None where no route joins some two of them."""
        server_of = self.layout.server_of
        key = job.route_policy, tuple(sorted([server_of[gpu] for gpu in gpus]))
        if key not in self._channels:
            self._channels[key] = self.layout.channel(job, gpus)
        return self._channels[key]

    @cached_property
    def number(self) -> dict[str, int]:
        """Return the number of each GPU by name."""
        return {self.operations.cluster.gpu_name(*gpu): n for n, gpu in enumerate(self.layout.gpus)}

    def ring(self, job: OperationGraph, gpus: Sequence[int]) -> Channel:
        """Return the channel of a job that a plan has on these GPUs."""
        channel = self.channel(job, gpus)
        if channel is None:
            raise ValueError("no path joins all servers of a job")
        return channel

    def shapes(self, index: int) -> tuple[Demand, ...]:
        """Return the demands of a job, with its levels in every profile."""
        demand = self.demands[index]
        if id(demand) not in self._shapes:
            self._shapes[id(demand)] = shapes(demand)
        return self._shapes[id(demand)]

    def levels(self, demand: Demand, caps: Sequence[int]) -> LevelPlan | None:
        """Return the levels of a job under caps, None where there are none."""
        key = (id(demand), tuple(caps))
        if key not in self._levels:
            self._levels[key] = level_plan(demand.job, demand.rows, caps) if min(caps) > 0 else None
        return self._levels[key]

    def tables(self, job: OperationGraph, gpus: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the duration of a block of a job by slot and level, in microseconds."""
        type_of = self.layout.type_of
        return [block.duration_us[type_of[gpu]] for block, gpu in zip(job.blocks, gpus, strict=True)]

    def caps(self, places: Placement) -> list[list[int]]:
        """Return the deepest level of each slot that memory admits, by job, given the GPUs of all jobs."""
        state = resident(self.layout, self.demands, places)
        jobs = zip(self.demands, places, strict=True)
        return [level_caps(self.layout, demand, gpus, state) for demand, gpus in jobs]

    def assignment(self, index: int, demand: Demand, gpus: Sequence[int], caps: Sequence[int]) -> Assignment | None:
        """Return a job on GPUs with levels under caps; None where there are none, or no path joins the GPUs."""
        key = (index, id(demand), tuple(gpus), tuple(caps))
        if key not in self._assignments:
            if len(self._assignments) >= _MOST_REMEMBERED:
                self._assignments.clear()
            plan = self.levels(demand, caps)
            self._assignments[key] = None if plan is None else self.placed(index, gpus, plan, caps, demand)
        return self._assignments[key]

    def placed(
        self, index: int, gpus: Sequence[int], plan: LevelPlan, caps: Sequence[int], demand: Demand | None = None
    ) -> Assignment | None:
        """Return a job on GPUs with given levels; None where no path joins the GPUs.

        `demand`: demand that the levels come from; by default that of the job.
        """
        job, demand = self.operations.jobs[index], demand or self.demands[index]
        channel = self.channel(job, gpus)
        if channel is None:
            return None
        type_of = self.layout.type_of
        # Plans that are not fixed are those of `levels`, each made once.
        key = id(demand), id(plan), tuple(caps), tuple([type_of[gpu] for gpu in gpus]), channel.rate, channel.latency_us
        tables, times = self.tables(job, gpus), None if plan.fixed else self._times.get(key)
        if times is None:
            exchange = [self.exchange(demand, row, channel) for row in plan.rows]
            length = mean_us(plan.rows, exchange, partial(self.iteration_us, demand, tables))
            times = exchange, loads_us(self.layout, demand, gpus, plan, caps, tables), length
            if not plan.fixed:
                self._times[key] = times
        exchange, slot_us, length = times
        return Assignment(
            demand=demand,
            job=job,
            gpus=list(gpus),
            tables=tables,
            links=channel.links,
            plan=plan,
            caps=None if min(caps) >= job.levels else list(caps),
            exchange=exchange,
            slot_us=slot_us,
            iteration_us=length,
        )

    def planned(
        self, index: int, gpus: Sequence[int], rows: Sequence[Sequence[int]], caps: Sequence[int], demand: Demand
    ) -> Assignment:
        """Return a job on the GPUs of a plan, with its levels by iteration and slot."""
        assignment = self.placed(index, gpus, LevelPlan(tuple(map(tuple, rows)), fixed=True), caps, demand)
        if assignment is None:
            raise ValueError(f"no path joins all servers of job {self.operations.jobs[index].name}")
        return assignment

    def exchange(self, demand: Demand, row: Levels, channel: Channel) -> tuple[int, ...]:
        """Return the durations of the transfers of an iteration, by bucket, in microseconds."""
        key = (id(demand), tuple(sorted(row)), channel.rate, channel.latency_us)
        if key not in self._exchange:
            self._exchange[key] = exchange_us(demand.job, row, channel)
        return self._exchange[key]

    def iteration_us(
        self, demand: Demand, tables: Sequence[Sequence[int]], row: Levels, exchange: Sequence[int]
    ) -> int:
        """Return the length of an iteration without contention, in microseconds.

        `tables`: duration of a block by slot and level, in microseconds. `exchange`: durations of its transfers by
        bucket, in microseconds.
        """
        levels = tuple(sorted(row, reverse=True))
        key = (id(demand), levels, exchange, tuple(sorted(map(id, tables))))
        if key not in self._lengths:
            self._lengths[key] = iteration_us(tables, levels, exchange)
        return self._lengths[key]

    def all_placed(self, placement: Placement) -> list[Assignment] | None:
        """Return all jobs on their GPUs; None where memory admits no levels for one, or no path joins its GPUs."""
        found: list[Assignment] = []
        for index, own in enumerate(checking_deadline(self.caps(placement))):
            assignment = self.assignment(index, self.demands[index], placement[index], own)
            if assignment is None:
                return None
            found.append(assignment)
        return found
