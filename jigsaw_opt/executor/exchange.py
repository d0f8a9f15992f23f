"""Gradient exchange by bucket: contributors reduce, all workers receive (specification: transfer).

An all-reduce among the ``c`` contributors and a broadcast from one of them to the ``w - c`` other workers move
``2(c-1) + (w-c) = (c-1) + (w-1)`` times the bucket in all, as much as the specification's ring; an all-reduce among all
workers, to which the others add zeros, would move ``2(w-1)`` times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import torch.distributed as dist
from torch import Tensor

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.costs import contributors

__all__ = ["Averaging", "GradientExchange", "require_full_depth"]


class Averaging(Enum):
    """What the sum of the contributors' gradients is divided by (SPB's ``reduce_op``)."""

    AVG_W_COUNT = "avg_w_count"
    """The number of contributors: the mean, an unbiased estimate of the gradient."""

    AVG = "avg"
    """The number of workers: segments near the input, which few workers reach, learn more slowly."""

    def divisor(self, levels: Sequence[int], bucket: int) -> int:
        """What the sum of the gradients of `bucket`, from 1, is divided by where workers go to `levels`."""
        return contributors(levels, bucket) if self is Averaging.AVG_W_COUNT else len(levels)


def require_full_depth(levels: Sequence[int], depth: int) -> None:
    """Raise `UsageError` if none of `levels` is `depth`, so that the first segments would get no gradients."""
    if max(levels) < depth:
        raise UsageError(f"in every iteration one worker must go to level {depth}")


class GradientExchange:
    """The exchange of one job's gradients.

    Every process of the default process group makes this object, also those that hold no worker of the job,
    and calls `prepare` in the same order, as `torch.distributed` asks of new groups.

    Parameters
    ----------
    ranks
        Rank of the process of each worker, in worker order; no two are equal.
    averaging
        What sums are divided by.
    """

    def __init__(self, ranks: Sequence[int], averaging: Averaging = Averaging.AVG_W_COUNT) -> None:
        self.ranks, self.averaging = tuple(ranks), averaging
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}

    @property
    def group(self) -> dist.ProcessGroup | None:
        """All workers, once an iteration is prepared; None for a worker alone."""
        return self._groups[tuple(sorted(self.ranks))] if len(self.ranks) > 1 else None

    def prepare(self, plan: Iterable[Sequence[int]], depth: int) -> None:
        """Make the process groups that iterations need, those that do not exist yet.

        Parameters
        ----------
        plan
            Levels of all workers in each iteration.
        depth
            Number of levels, ``D``.

        Raises
        ------
        UsageError
            In some iteration nobody goes to full depth, so the first segments would get no gradients.
        """
        distinct = set(map(tuple, plan))
        for levels in distinct:
            require_full_depth(levels, depth)
        wanted = {
            ranks
            for levels in distinct
            for bucket in range(1, depth + 1)
            for ranks in self._parties(bucket, levels)
            if len(ranks) > 1
        }
        for ranks in sorted(wanted - self._groups.keys()):
            # Bound to the job by its own group: two jobs on the same processes must not wait for each other.
            self._groups[ranks] = dist.new_group(list(ranks))

    def _parties(self, bucket: int, levels: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Who reduces, and who hands the result on and receives it."""
        reducing = tuple(sorted(rank for rank, level in zip(self.ranks, levels, strict=True) if level >= bucket))
        return reducing, tuple(sorted(set(self.ranks) - set(reducing[1:])))

    def run(self, bucket: int, levels: Sequence[int], gradients: Tensor) -> None:
        """Take part in one transfer; on a CPU, return when this worker has the result.

        On CUDA the result is there when the current stream has come to it.

        All workers of a job run its transfers in the same order, 1 to D in each iteration.

        Parameters
        ----------
        bucket
            1 to D.
        levels
            Of all workers in this iteration, for which `prepare` has been called.
        gradients
            The flat buffer of the bucket: this worker's gradients if it contributes, whatever it holds otherwise;
            afterwards the contributors' average.
        """
        if len(self.ranks) == 1 or not gradients.numel():
            return
        reducing, receiving = self._parties(bucket, levels)
        rank = dist.get_rank()
        if rank in reducing:
            gradients.div_(self.averaging.divisor(levels, bucket))
            if len(reducing) > 1:
                dist.all_reduce(gradients, group=self._groups[reducing])
        if rank in receiving and len(receiving) > 1:
            dist.broadcast(gradients, src=reducing[0], group=self._groups[receiving])
