"""Placed jobs: all that timing needs to know once every worker has its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.operations import OperationGraph
from jigsaw_opt.solvers.assignments.layout import Demand, Layout
from jigsaw_opt.solvers.assignments.levels import LevelPlan, mean_slot_us

__all__ = ["Assignment", "loads_us"]


@dataclass(slots=True, eq=False)
class Assignment:
    """A job on its GPUs.

    Parameters
    ----------
    demand
        Its demand.
    job
        Its operations.
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

    Parameters
    ----------
    layout
        GPUs of the instance.
    demand
        Demand of the job.
    gpus
        GPU of each slot.
    plan
        Levels of the job.
    caps
        By slot: the deepest level that memory admits.
    tables
        Duration of a block by slot and level, in microseconds.

    Returns
    -------
    list[int]
        By slot, in microseconds.
    """
    if plan.fixed or min(caps) < demand.job.levels:
        return mean_slot_us(plan, caps, tables)
    return [demand.slot_us[layout.type_of[gpu]] // demand.job.iterations for gpu in gpus]
