"""Samples that move from the processes of one layer to those of the next."""

from __future__ import annotations

from collections.abc import Iterator

import torch.distributed as dist
from torch import Tensor

__all__ = ["reshard", "rows_of"]


def rows_of(rank: int, processes: int, samples: int) -> range:
    """Return the samples of a layer that a process has; maybe none."""
    each = samples // processes
    return range(rank * each, (rank + 1) * each) if rank < processes else range(0)


def reshard(
    held: Tensor | None, samples: int, ways: tuple[int, int], row: Tensor, group: dist.ProcessGroup
) -> Tensor | None:
    """Move samples from the first processes of one number to those of another; all processes of either take part.

    The samples that this process is to have; None where there are none.

    `held`: the samples of this process; None where it has none.
    """
    rank, (before, after) = dist.get_rank(), ways
    mine, wanted = rows_of(rank, before, samples), rows_of(rank, after, samples)
    result = row.new_empty((len(wanted), *row.shape)) if wanted else None
    works, kept = [], []
    for other in range(max(ways)):
        theirs = _common(mine, rows_of(other, after, samples))
        own = _common(wanted, rows_of(other, before, samples))
        if theirs and held is not None:
            part = held[theirs.start - mine.start : theirs.stop - mine.start].contiguous()
            if other == rank and result is not None:
                result[theirs.start - wanted.start : theirs.stop - wanted.start] = part
            else:
                kept.append(part)
                works.append(dist.P2POp(dist.isend, part, other, group))
        if own and other != rank and result is not None:
            rows = result[own.start - wanted.start : own.stop - wanted.start]
            works.append(dist.P2POp(dist.irecv, rows, other, group))
    for work in _started(works):
        work.wait()
    return result


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _started(works: list[dist.P2POp]) -> Iterator[dist.Work]:
    """Start all at once, so that no process waits for another that waits for it."""
    yield from dist.batch_isend_irecv(works) if works else ()
