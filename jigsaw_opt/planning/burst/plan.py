"""A burst-parallel plan, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal

from jigsaw_opt.documents.readers.profiles.burst_costs import BurstCosts, BurstLayer, LayerOption
from jigsaw_opt.errors import out_of_range

BurstVariant = Literal["exact", "budget"]
_SHORT_US = 300.0
"""Layers of at most so many microseconds on one GPU are under no limit, as in the released planner."""
_TOLERANCE = 1e-9
"""Relative error of rounding by which an amplification may exceed its limit."""


@dataclass(frozen=True)
class BurstPlan:
    """One option for each layer.

    `choice`: for each layer, the place of its option among its options.
    """

    costs: BurstCosts
    choice: tuple[int, ...]

    @property
    def options(self) -> list[LayerOption]:
        """The option of each layer."""
        return [layer.options[at] for layer, at in zip(self.costs.layers, self.choice, strict=True)]

    @property
    def gpus_per_layer(self) -> list[int]:
        """GPUs of each layer."""
        return [option.gpus for option in self.options]

    @cached_property
    def layer_us(self) -> list[float]:
        """Microseconds of each layer with moving its input and synchronising its gradients."""
        before = (0, *self.choice)
        return [
            layer_us(layer, previous, own)
            for layer, previous, own in zip(self.costs.layers, before, self.choice, strict=False)
        ]

    @property
    def iteration_us(self) -> float:
        """Microseconds of an iteration: layers follow one another, forward and back."""
        return sum(self.layer_us)

    @property
    def gpu_us(self) -> float:
        """GPU time of an iteration in microseconds: the time of each layer on each of its GPUs."""
        return sum(time * gpus for time, gpus in zip(self.layer_us, self.gpus_per_layer, strict=True))

    @property
    def job_amplification(self) -> float | None:
        """GPU time over the time on one GPU; None where that is 0."""
        single = self.costs.single_gpu_us
        return self.gpu_us / single if single else None

    @property
    def idle_share(self) -> float:
        """Share of the time of all GPUs in an iteration that no layer uses: room for other jobs."""
        whole = self.costs.gpus * self.iteration_us
        return 1 - self.gpu_us / whole if whole else 0.0

    @property
    def amplifications(self) -> list[float | None]:
        """Amplification of each layer; None where the layer is too short to be under a limit."""
        columns = zip(self.costs.layers, self.layer_us, self.gpus_per_layer, strict=True)
        return [amplification(layer, time, gpus) for layer, time, gpus in columns]

    def over(self, limit: float) -> list[int]:
        """Return places of the layers whose amplification is above a limit."""
        return [at for at, value in enumerate(self.amplifications) if not within(value, limit)]


def layer_us(layer: BurstLayer, previous: int, own: int) -> float:
    """Return microseconds of a layer with its option `own`, after the option `previous` of the layer before.

    Microseconds: moving the input, the passes on the GPUs, and synchronising gradients.
    """
    option = layer.options[own]
    moved = layer.transfer_us[previous][own] if layer.transfer_us else 0.0
    return moved + option.gpu_us + option.sync_us


def amplification(layer: BurstLayer, time_us: float, gpus: int) -> float | None:
    """Return the GPU time of a layer divided by its time on one GPU; None for a layer that is too short to count."""
    return time_us * gpus / layer.single_gpu_us if layer.single_gpu_us > _SHORT_US else None


def within(value: float | None, limit: float) -> bool:
    """Return whether an amplification, or a GPU time, keeps a limit."""
    return value is None or value <= limit * (1 + _TOLERANCE)


def require_limit(limit: float) -> None:
    """Refuse a limit that is no finite number above 0."""
    if not 0 < limit < inf:
        raise out_of_range("amplification_limit", f"the limit of amplification is a finite number above 0, not {limit}")


def widest_plan(costs: BurstCosts) -> BurstPlan:
    """Return the plan with as many GPUs in every layer as it may have: data parallelism."""
    return BurstPlan(
        costs, tuple(max(range(len(layer.options)), key=lambda at: layer.options[at].gpus) for layer in costs.layers)
    )
