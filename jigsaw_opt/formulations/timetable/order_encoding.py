"""The channel of a job as two order encodings, one of rates and one of latencies.

The rate is the smallest and the latency the largest among the links and shared fabrics in use, so each of them only
ever pushes a transfer down an order encoding: step ``r`` is taken where something in use is at least as slow as value
``r``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.compiled.operations import OperationGraph

Variable = TypeVar("Variable")


@dataclass(frozen=True, slots=True)
class OrderEncoding(Generic[Variable]):
    """Values from the best to the worst, and one literal for each step down; a lower step implies all above it."""

    values: tuple[int, ...]
    steps: tuple[Variable, ...]


@dataclass(frozen=True)
class ChannelEncoding(Generic[Variable]):
    """Rate and latency of the channel of a job; those of one that has no transfers unless they are given."""

    rate: OrderEncoding[Variable] = OrderEncoding((1,), ())
    latency: OrderEncoding[Variable] = OrderEncoding((0,), ())

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


def transfer_expression(job: OperationGraph, channel: ChannelEncoding[Variable], bucket: int, contributors: int) -> Any:
    """Return the duration of a transfer with a known number of contributors; an integer where the channel is fixed.

    In microseconds: payload time at the rate, and one latency for each step of the ring.

    `bucket`: number of the bucket, from 1.
    """
    # The time of the payload depends on the rate alone, and the waiting on the latency alone. So both encodings add up,
    # and no product of literals is needed.
    moves = [job.transfer_us(bucket, contributors, Channel((), rate, 0)) for rate in channel.rate.values]
    steps = contributors + job.slots - 2
    waits = [steps * latency for latency in channel.latency.values]
    return encoded_value(moves, channel.rate.steps) + encoded_value(waits, channel.latency.steps)


def encoded_value(values: Sequence[int], steps: Sequence[Any]) -> Any:
    """Return the value at the step reached on an order encoding, as a linear expression; an integer without steps."""
    total: Any = values[0]
    for (above, below), step in zip(pairwise(values), steps, strict=True):
        total = total + (below - above) * step
    return total
