"""The data of a retiming problem, and the variables of one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.disjoint import Expression

__all__ = ["Frame", "RetimingTask", "TaskVariables"]


@dataclass(frozen=True, slots=True)
class RetimingTask:
    """A placed job.

    `gpus`: GPU of each slot, by number. `tables`: duration of a block by slot and level, in microseconds. `channel`:
    links, rate and latency of its transfers. `caps`: deepest level of each slot that memory admits. `deadline`: it ends
    no later; on the cyclic horizon its span is at most this.
    """

    job: OperationGraph
    gpus: Sequence[int]
    tables: Sequence[Sequence[int]]
    channel: Channel
    caps: Sequence[int]
    deadline: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The horizon and the objective, which all jobs share.

    `period`: length of the period in microseconds, or None on the finite horizon. `weighted`: whether the weighted sum
    of all ends is minimised on the finite horizon; else the latest end is. `bound, limit`: least and largest value of
    interest of that objective; not used on the cyclic horizon.
    """

    period: int | None = None
    weighted: bool = False
    bound: int = 0
    limit: int = 0


@dataclass(slots=True)
class TaskVariables:
    """Variables of one job.

    `levels`: ``levels[i][slot][d]``: the slot is at level ``d`` in iteration ``i``; empty values where there is no
    choice. `starts, ends`: start of each block, and the barrier, by iteration. `moves, durations`: start and duration
    of each transfer, by iteration.
    """

    task: RetimingTask
    levels: list[list[dict[int, cp_model.IntVar]]] = field(default_factory=list)
    starts: list[list[cp_model.IntVar]] = field(default_factory=list)
    sizes: list[list[Expression]] = field(default_factory=list)
    moves: list[list[cp_model.IntVar]] = field(default_factory=list)
    durations: list[list[Expression]] = field(default_factory=list)
    ends: list[cp_model.IntVar] = field(default_factory=list)
