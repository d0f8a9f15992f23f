"""What a network is to the executor: named units in a row, a loss, and a source of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Generator, Tensor, nn

__all__ = ["Batch", "Network"]

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Network:
    """A network that can be cut between any two of its units.

    Parameters
    ----------
    units
        Modules from the input to the output by name; each takes the tensor that the one before it returns.
    loss
        Mean loss over a batch, from the last unit's output and the targets.
    batch
        Draws inputs and targets of so many samples with a generator on the CPU, and depends on nothing else.
    """

    units: Mapping[str, nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    batch: Callable[[int, Generator], Batch]
