"""Placed jobs: all that timing needs to know once every worker has its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.solvers.assignments.layout import Demand, Layout
from jigsaw_opt.solvers.assignments.levels import LevelPlan, mean_slot_us

__all__ = ["Assignment", "loads_us"]


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
