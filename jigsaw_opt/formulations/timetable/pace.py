"""The channel of a job as two ladders, one of rates and one of latencies.

The rate is the smallest and the latency the largest among the links and shared fabrics in use, so each of them only
ever pushes a transfer down a ladder: step ``r`` is taken where something in use is at least as slow as value ``r``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic

from jigsaw_opt.formulations.timetable.variables import Variable
from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.operations import OperationGraph

__all__ = ["ChannelPace", "Ladder", "climb", "transfer_expression"]


@dataclass(frozen=True, slots=True)
class Ladder(Generic[Variable]):
    """Values from the best to the worst, and one literal for each step down; a lower step implies all above it."""

    values: tuple[int, ...]
    steps: tuple[Variable, ...]


@dataclass(frozen=True)
class ChannelPace(Generic[Variable]):
    """Rate and latency of the channel of a job."""

    rate: Ladder[Variable]
    latency: Ladder[Variable]

    @property
    def fixed(self) -> bool:
        """Whether every placement has the same rate and latency."""
        return not self.rate.steps and not self.latency.steps

    @property
    def best(self) -> Channel:
        """Largest rate and smallest latency of any placement."""
        return Channel((), self.rate.values[0], self.latency.values[0])

    @property
    def worst(self) -> Channel:
        """Smallest rate and largest latency of any placement."""
        return Channel((), self.rate.values[-1], self.latency.values[-1])


def transfer_expression(job: OperationGraph, pace: ChannelPace[Variable], bucket: int, contributors: int) -> Any:
    """Duration of a transfer with a known number of contributors; an integer where the pace is fixed."""
    moves = [job.transfer_us(bucket, contributors, Channel((), rate, 0)) for rate in pace.rate.values]
    steps = contributors + job.slots - 2
    waits = [steps * latency for latency in pace.latency.values]
    return climb(moves, pace.rate.steps) + climb(waits, pace.latency.steps)


def climb(values: Sequence[int], steps: Sequence[Any]) -> Any:
    """Value at the step reached on a ladder, as a linear expression; an integer on a ladder without steps."""
    climbed: Any = values[0]
    for (above, below), step in zip(pairwise(values), steps, strict=True):
        climbed = climbed + (below - above) * step
    return climbed
