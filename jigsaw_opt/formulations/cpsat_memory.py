"""The memory of a GPU in models of CP-SAT that do not name its size beforehand (specification: memory)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["add_gpu_memory"]


def add_gpu_memory(
    model: cp_model.CpModel, gpu: int, memory: int, states: Iterable[Any], activations: Iterable[Any]
) -> None:
    """State that a GPU holds the states of all its workers and the largest activations among them."""
    # Nothing gains by a larger value, so that lower bounds are enough.
    largest = model.new_int_var(0, memory, f"activations on {gpu}")
    for size in activations:
        model.add(largest >= size)
    model.add(sum(states) + largest <= memory)
