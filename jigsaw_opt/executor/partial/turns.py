"""Whether the training of this process waits for turns: those of a plan that it follows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import torch


class Turns(Protocol):
    """The turns in which a worker's blocks and exchanges may begin."""

    def follows(self, job: object) -> bool:
        """Return whether a training whose levels are those of `job` waits for these turns."""

    def begin_block(self, iteration: int) -> None:
        """Return when the block of an iteration may begin."""

    def end_block(self, device: torch.device) -> None:
        """Tell that the block has ended on its device."""

    def transfer(self, iteration: int, bucket: int, is_first: bool, is_last: bool) -> AbstractContextManager[None]:
        """Return the turn in which a part of a bucket is exchanged.

        Parameters
        ----------
        iteration
            Number of the iteration.
        bucket
            Number of the bucket, from 1.
        is_first
            Whether it is the bucket's first part.
        is_last
            Whether it is the bucket's last part.
        """

    def end_iteration(self) -> None:
        """Tell that all transfers of an iteration have ended."""


_turns: Turns | None = None


def set_turns(turns: Turns | None) -> Turns | None:
    """Have the trainings of this process wait for `turns`; return what they waited for before."""
    global _turns
    before, _turns = _turns, turns
    return before


def turns_of(job: object) -> Turns | None:
    """Return the turns that a training whose levels are those of `job` waits for; None for none."""
    return _turns if _turns is not None and _turns.follows(job) else None
