"""Passes of a pipeline, and the GPUs that take them in some order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "W"]


class Pass(NamedTuple):
    """A pass of one micro-batch through one stage.

    ``F`` is the forward pass; ``B`` the backward pass, or its part for the gradient of the input where ``W`` is the one
    for the gradient of the weights.
    """

    kind: Kind
    micro_batch: int
    stage: int

    @property
    def name(self) -> str:
        """Name of its block, as ``F3.0``."""
        return f"{self.kind}{self.micro_batch}.{self.stage}"


Orders = list[list[Pass]]
"""By GPU, its passes."""


@dataclass(frozen=True, slots=True)
class PipelineLayout:
    """The GPU of each stage, and the number of micro-batches that pass through them.

    `micro_batches`: how many there are in an iteration. `split`: whether the gradient of the weights has a pass of its
    own.
    """

    gpu_of: tuple[int, ...]
    micro_batches: int
    split: bool

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.gpu_of)

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return max(self.gpu_of) + 1

    @property
    def chunks(self) -> int:
        """Stages of each GPU."""
        return self.stages // self.gpus

    def passes(self) -> Iterator[Pass]:
        """Yield all passes of an iteration, by micro-batch and stage."""
        for batch, stage in product(range(self.micro_batches), range(self.stages)):
            yield Pass("F", batch, stage)
            yield from self.backward(batch, stage)

    def backward(self, micro_batch: int, stage: int) -> list[Pass]:
        """Return the backward pass, followed at once by the pass for the weights where that is split off."""
        first = Pass("B", micro_batch, stage)
        return [first, Pass("W", micro_batch, stage)] if self.split else [first]
