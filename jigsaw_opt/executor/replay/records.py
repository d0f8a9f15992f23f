"""What the processes of a replay hand over. Needs no torch.

Moments are microseconds after the begin of a run, on the clock of the first process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.executor.replay.order import TransferKey

__all__ = ["BlockRecord", "Part", "RankReport", "TransferRecord"]


class BlockRecord(NamedTuple):
    """A block that has been run."""

    job: int
    iteration: int
    slot: int
    level: int
    start_us: int
    end_us: int
    loss: float


class TransferRecord(NamedTuple):
    """A worker's part in a transfer."""

    key: TransferKey
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Part:
    """What one process did in a run.

    Parameters
    ----------
    blocks, transfers
        Of the workers that it hosts.
    origins_us
        When each pass of a finite plan began.
    passes
        How many there were.
    begin_us
        When the run began, the same for all of its processes.
    """

    blocks: list[BlockRecord]
    transfers: list[TransferRecord]
    origins_us: list[int]
    passes: int
    begin_us: int = 0


@dataclass(frozen=True)
class RankReport:
    """What one process found.

    Parameters
    ----------
    parts
        What it did in each plan.
    parameters
        By job and worker, the digest of its parameters at the end of the first plan.
    memory_bytes
        The most that it held.
    done
        Iterations of each job before this run.
    """

    parts: list[Part]
    parameters: dict[tuple[int, int], str]
    memory_bytes: int
    done: list[int]
