"""The memory of a GPU (specification: memory): the states of all its workers, and the activations of one at a time.

Outside the checker, what memory admits is asked of these functions. Greedy and search keep the two sums of each GPU.
Models of solvers state the same as a constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.problem.operations import OperationGraph

__all__ = ["deepest_level", "levels_within", "most_bytes", "needed_bytes"]


def needed_bytes(workers: Iterable[tuple[int, int]]) -> int:
    """Return the bytes that a GPU needs for some workers.

    `workers`: for each the bytes of its state, and of its activations at its largest level.
    """
    states = largest = 0
    for state, activations in workers:
        states += state
        largest = max(largest, activations)
    return states + largest


def most_bytes(jobs: Iterable[OperationGraph]) -> int:
    """Return the bytes that a GPU needs at most for one worker of each job, whatever their levels."""
    return needed_bytes((job.state_bytes, job.activation_bytes[-1]) for job in jobs)


def levels_within(activation_bytes: Sequence[int], room: int) -> int:
    """Return the largest level whose activations fit into so many bytes, 0 for none."""
    return sum(size <= room for size in activation_bytes)


def deepest_level(job: OperationGraph, memory: int) -> int:
    """Return the largest level of a worker that is alone on a GPU with so much memory, 0 for none."""
    return levels_within(job.activation_bytes, memory - job.state_bytes)
