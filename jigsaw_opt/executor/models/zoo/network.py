"""What a network is to the executor: named units in a row, a loss, and a source of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

Batch = tuple[Any, Any]
"""Inputs and targets: each a tensor, or tuples, lists and dictionaries of them."""


@dataclass(frozen=True)
class Network:
    """A network that can be cut between any two of its units.

    `units`: modules from the input to the output by name; each takes what the one before it returns. A module may stand
    at several places, each with a name of its own. `loss`: mean loss over a batch, from the last unit's output and the
    targets. `batch`: draws inputs and targets of so many samples with a generator on the CPU, and depends on nothing
    else.
    """

    units: Mapping[str, nn.Module]
    loss: Callable[[Any, Any], Tensor]
    batch: Callable[[int, Generator], Batch]


def moved(tree: Any, device: torch.device | str) -> Any:
    """Return a tensor on `device`, or tuples, lists and dictionaries with all their tensors there."""
    if isinstance(tree, dict):
        return {key: moved(value, device) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(moved(item, device) for item in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(moved(item, device) for item in tree)
    return tree.to(device) if hasattr(tree, "to") else tree
