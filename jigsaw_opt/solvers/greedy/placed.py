"""Placed jobs: all that timing needs to know once every worker has its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jigsaw_opt.problem.clock import looking
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.pieces import PieceGraph, Pieces
from jigsaw_opt.solvers.greedy.layout import Demand, Layout, exchange_us, iteration_us, mean_us
from jigsaw_opt.solvers.greedy.levels import LevelPlan, Levels, level_plan, mean_slot_us
from jigsaw_opt.solvers.greedy.placement import Placement, level_caps, resident

__all__ = ["PlacedJob", "loads_us", "place_jobs"]


@dataclass(slots=True, eq=False)
class PlacedJob:
    """A job on its GPUs.

    Parameters
    ----------
    demand
        What it asks for.
    job
        Its pieces.
    gpus
        GPU of each slot, numbered as in `Layout`.
    tables
        Duration of a block by slot and level.
    links
        Links of its transfers.
    plan
        Its levels.
    caps
        Deepest level of each slot that memory admits, or None where it admits all.
    exchange
        Durations of the transfers by iteration and bucket.
    slot_us
        Mean GPU time of an iteration by slot.
    iteration_us
        Mean time of its iterations when no one is in the way.
    """

    demand: Demand
    job: PieceGraph
    gpus: list[int]
    tables: list[tuple[int, ...]]
    links: tuple[int, ...]
    plan: LevelPlan
    caps: list[int] | None
    exchange: list[tuple[int, ...]]
    slot_us: list[int]
    iteration_us: int


def place_jobs(
    pieces: Pieces, layout: Layout, demands: Sequence[Demand], placement: Placement
) -> list[PlacedJob] | None:
    """Levels, durations and channels of every job; None where memory admits no levels for one."""
    state = resident(layout, demands, placement)
    exchanges: dict[tuple[int, Levels, int, int], tuple[int, ...]] = {}
    placed = []
    for job, demand, gpus in looking(zip(pieces.jobs, demands, placement, strict=True)):
        caps = level_caps(layout, demand, gpus, state)
        plan = level_plan(job, demand.rows, caps)
        channel = layout.channel(gpus)
        if plan is None or channel is None:
            return None
        tables = [block.duration_us[layout.type_of[gpus[block.slot]]] for block in job.blocks]
        exchange = _exchange(exchanges, demand, plan, channel)
        placed.append(
            PlacedJob(
                demand=demand,
                job=job,
                gpus=gpus,
                tables=tables,
                links=channel.links,
                plan=plan,
                caps=None if min(caps) >= job.levels else caps,
                exchange=exchange,
                slot_us=loads_us(layout, demand, gpus, plan, caps, tables),
                iteration_us=mean_us(plan.rows, exchange, partial(_length_us, tables)),
            )
        )
    return placed


def loads_us(
    layout: Layout,
    demand: Demand,
    gpus: Sequence[int],
    plan: LevelPlan,
    caps: Sequence[int],
    tables: Sequence[Sequence[int]],
) -> list[int]:
    """`PlacedJob.slot_us` of a job with levels under caps."""
    if plan.fixed or min(caps) < demand.job.levels:
        return mean_slot_us(plan, caps, tables)
    return [demand.slot_us[layout.type_of[gpu]] // demand.job.iterations for gpu in gpus]


def _length_us(tables: Sequence[Sequence[int]], row: Levels, exchange: Sequence[int]) -> int:
    return iteration_us(tables, sorted(row, reverse=True), exchange)


def _exchange(
    known: dict[tuple[int, Levels, int, int], tuple[int, ...]], demand: Demand, plan: LevelPlan, channel: Channel
) -> list[tuple[int, ...]]:
    found = []
    for row in plan.rows:
        key = (id(demand), row, channel.rate, channel.latency_us)
        if key not in known:
            known[key] = exchange_us(demand.job, row, channel)
        found.append(known[key])
    return found
