"""Local steps: workers train on their own, and the changes of their parameters are averaged now and then (local SGD).

Source: Stich, "Local SGD converges fast and communicates little", ICLR 2019.

The averagers of PyTorch (`torch.distributed.algorithms.model_averaging`) take the mean of the parameters over all
workers. Where levels differ, a bucket that one of four workers trains would get a quarter of the change that it has
with averaged gradients. So changes are averaged here, and over the workers that have made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jigsaw_opt.errors import require_at_least
from jigsaw_opt.executor.exchange.buckets import alike
from jigsaw_opt.problem.costs import contributors


class LocalSteps:
    """What a worker knows of the parameters that all workers last had in common.

    `every`: parameters are averaged after so many iterations, again and again; 1 for never. `first`: the first
    iteration since they were the same everywhere; None where that is not known.
    """

    def __init__(self, every: int) -> None:
        require_at_least(1, average_every=every)
        self.every = every
        self.first: int | None = None
        self._common: dict[nn.Parameter, Tensor] = {}

    def forget(self) -> None:
        """Begin anew with the next iteration, as where parameters were loaded."""
        self.first = None
        self._common.clear()

    def begin(self, iteration: int, parameters: Iterable[nn.Parameter]) -> None:
        """Take note of parameters that are the same on all workers."""
        held = (p for p in parameters if p.is_floating_point() or p.is_complex())
        self.first, self._common = iteration, {p: p.detach().clone() for p in held}

    def is_due(self, iteration: int, parameters: Iterable[nn.Parameter]) -> bool:
        """Return whether parameters are to be averaged before an iteration; begin with it where none is known."""
        if self.every == 1:
            return False
        if self.first is None:
            self.begin(iteration, parameters)
        return iteration != self.first and iteration % self.every == 0

    @torch.no_grad()
    def average(
        self, buckets: Mapping[nn.Parameter, int], levels: Sequence[Sequence[int]], group: dist.ProcessGroup | None
    ) -> None:
        """Give all workers the same parameters, with the same bits.

        The changes of a bucket are summed up and divided by the mean number of its contributors. To the first order of
        the learning rate this is what averaged gradients give, for there the step of an iteration is the mean over
        those who contribute to it. At full depth it is the mean of the parameters.

        `buckets`: that of each parameter. `levels`: those of all workers in each iteration since the last time.
        """
        workers = dist.get_world_size(group)
        for bucket in sorted({*buckets.values()}):
            divisor = contributor_mean(levels, bucket) or workers
            for own in alike(p for p in self._common if buckets.get(p) == bucket):
                exact = torch.promote_types(own[0].dtype, torch.float32)
                common = torch.cat([self._common[p].flatten().to(exact) for p in own])
                changes = torch.cat([p.flatten().to(exact) for p in own]).sub_(common)
                dist.all_reduce(changes, group=group)
                found = torch.split(common.add_(changes.div_(divisor)), [p.numel() for p in own])
                for parameter, numbers in zip(own, found, strict=True):
                    parameter.copy_(numbers.view_as(parameter))


def contributor_mean(levels: Sequence[Sequence[int]], bucket: int) -> float:
    """Return the mean number of contributors of the iterations in which a bucket has any; 0 where it never has."""
    counts = [count for own in levels if (count := contributors(own, bucket))]
    return sum(counts) / len(counts) if counts else 0.0
