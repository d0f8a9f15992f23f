"""Gradient exchange by bucket: contributors reduce, all workers receive (specification: transfer).

Where all ``w`` workers contribute, they all-reduce. Else each of the ``c`` contributors adds up one piece of the
bucket, which it gets from the others, and broadcasts the sum. That moves ``(c-1) + (w-1)`` times the bucket in all, as
much as the specification's ring; an all-reduce to which the other workers add zeros would move ``2(w-1)`` times. One
process group serves whoever contributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import torch
import torch.distributed as dist
from torch import Tensor

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.costs import contributors


class Averaging(Enum):
    """The divisor of the sum of the contributors' gradients (SPB's ``reduce_op``)."""

    AVG_W_COUNT = "avg_w_count"
    """The number of contributors: the mean, an unbiased estimate of the gradient."""

    AVG = "avg"
    """The number of workers: segments near the input, which few workers reach, learn more slowly."""

    def divisor(self, levels: Sequence[int], bucket: int) -> int:
        """Return the divisor of the sum of the gradients of a bucket.

        Parameters
        ----------
        levels
            Level of each worker.
        bucket
            Number of the bucket, from 1.

        Returns
        -------
        int
            The number of workers that contribute to the bucket, or that of all workers.
        """
        return contributors(levels, bucket) if self is Averaging.AVG_W_COUNT else len(levels)


def require_full_depth(levels: Sequence[int], depth: int) -> None:
    """Refuse levels of which none is the full depth: the first segments would get no gradients."""
    if max(levels) < depth:
        raise UsageError(f"in every iteration one worker must go to level {depth}", code="contradiction")


class GradientExchange:
    """The exchange of one job's gradients.

    Parameters
    ----------
    ranks
        Rank of the process of each worker, in worker order; no two are equal.
    averaging
        What sums are divided by.
    group
        A process group of these ranks, in which nothing else is sent meanwhile; None to make one. Then every process of
        the default process group makes this object, also those that hold no worker of the job, in the same order, as
        `torch.distributed` asks of new groups.

    Attributes
    ----------
    group : ProcessGroup or None
        All workers; None for a worker alone.
    """

    def __init__(
        self, ranks: Sequence[int], averaging: Averaging = Averaging.AVG_W_COUNT, group: dist.ProcessGroup | None = None
    ) -> None:
        self.ranks, self.averaging = tuple(ranks), averaging
        # Bound to the job by its own group: two jobs on the same processes must not wait for each other.
        self.group = dist.new_group(sorted(ranks)) if group is None and len(self.ranks) > 1 else group

    def run(self, bucket: int, levels: Sequence[int], gradients: Tensor) -> None:
        """Take part in one transfer; on a CPU, return when this worker has the result.

        On CUDA the result is there when the current stream has come to it. All workers get the same bits.

        All workers of a job run its transfers in the same order, 1 to D in each iteration.

        Parameters
        ----------
        bucket
            1 to D.
        levels
            The level of each worker in this iteration.
        gradients
            The flat buffer of the bucket: this worker's gradients if it contributes, whatever it holds otherwise;
            afterwards the contributors' average.

        Raises
        ------
        UsageError
            Nobody contributes.
        """
        require_full_depth(levels, bucket)
        reducing = sorted(rank for rank, level in zip(self.ranks, levels, strict=True) if level >= bucket)
        if len(self.ranks) == 1 or not gradients.numel():
            return
        if dist.get_rank() in reducing:
            gradients.div_(self.averaging.divisor(levels, bucket))
        if len(reducing) == len(self.ranks):
            dist.all_reduce(gradients, group=self.group)
            return
        # Each contributor adds up one piece, from all contributors, and broadcasts the sum to all workers.
        pieces = dict(zip(reducing, torch.tensor_split(gradients, len(reducing)), strict=True))
        if dist.get_rank() in pieces:
            for share in received_pieces(pieces, self.group):
                pieces[dist.get_rank()].add_(share)
        broadcast_pieces(pieces, self.group)


def received_pieces(pieces: Mapping[int, Tensor], group: dist.ProcessGroup | None) -> list[Tensor]:
    """Send the piece of each rank there, all in one batch; return what the others send of this one's piece, by rank."""
    own = pieces[dist.get_rank()]
    # Gloo sends from one process to another what is in the host's memory.
    is_gloo = f"{own.device.type}:gloo" in dist.get_backend_config(group)
    place = torch.device("cpu") if is_gloo else own.device
    others = {rank: piece.to(place) for rank, piece in pieces.items() if piece is not own}
    received = {rank: torch.empty_like(own, device=place) for rank in others if own.numel()}
    sent = [dist.P2POp(dist.isend, _bytes(piece), rank, group) for rank, piece in others.items() if piece.numel()]
    awaited = [dist.P2POp(dist.irecv, _bytes(piece), rank, group) for rank, piece in received.items()]
    for work in dist.batch_isend_irecv([*sent, *awaited]) if sent or awaited else []:
        work.wait()
    return [piece.to(own.device) for piece in received.values()]


def broadcast_pieces(pieces: Mapping[int, Tensor], group: dist.ProcessGroup | None) -> None:
    """Overwrite each piece with that of its rank."""
    parts = [(rank, _bytes(piece)) for rank, piece in pieces.items() if piece.numel()]
    for work in [dist.broadcast(part, rank, group, async_op=True) for rank, part in parts]:
        work.wait()


def _bytes(tensor: Tensor) -> Tensor:
    """Return a view of a tensor's bytes, for Gloo knows not all types."""
    return tensor.view(torch.uint8)
