"""A job whose workers take turns on one replica in one process, with the arithmetic of blocks and exchange.

After each exchange all workers have the same gradients, so their parameters and optimisers stay equal and one
replica stands for all: what many workers would learn can be found with the memory of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jigsaw_opt.executor.exchange.buckets import GradientBuckets
from jigsaw_opt.executor.exchange.by_bucket import Averaging
from jigsaw_opt.executor.models.building import SegmentedModel
from jigsaw_opt.executor.models.zoo.network import Batch
from jigsaw_opt.executor.partial.steps import AdaptedSteps
from jigsaw_opt.executor.partial.weights import GradientWeights, contributor_share


class Emulation:
    """The workers of one job; sums are rounded in another order than in an exchange, nothing else differs.

    Running statistics of batch normalisation, which no gradient depends on, see the batches of all workers, while
    in separate processes each worker keeps its own.
    """

    def __init__(
        self,
        model: SegmentedModel,
        optimiser: torch.optim.Optimizer,
        averaging: Averaging = Averaging.AVG_W_COUNT,
        kept_decay: float = 0.0,
    ) -> None:
        self.model, self.optimiser, self.averaging = model, optimiser, averaging
        self.buckets = GradientBuckets(model)
        self._levels: Sequence[int] = ()
        self._samples: Sequence[int] = ()
        self._weights = GradientWeights(kept_decay)
        self._kept: dict[tuple[int, int], list[Tensor]] = {}
        self._iteration = 0

    def adapt(self, rate_power: float, count_samples: bool) -> None:
        """Have the optimiser's steps depend on contributors, as `PartialBackprop.adapt`; a group has one bucket."""
        of = {p: bucket for bucket, own in enumerate(self.model.buckets, 1) for p in own}
        AdaptedSteps(self.optimiser, of, self._share, rate_power, count_samples)

    def _share(self, bucket: int) -> float:
        return contributor_share(self._levels, self._samples, bucket)

    def iterate(self, levels: Sequence[int], batches: Sequence[Batch], samples: Sequence[int] | None = None) -> Tensor:
        """Return each worker's loss, ``(workers,)``, after one iteration of all and the optimiser's step.

        What nobody reaches has no gradient, so the optimiser leaves it as it is.

        `samples`: of which the gradient of each worker is a mean; None where they count alike.
        """
        self._levels, self._samples = levels, samples or [1] * len(levels)
        if samples is not None or self._weights.decay:
            losses = self._weighted(batches)
        else:
            self.buckets.begin(self.model.depth, _nobody)
            losses = [self.model.backpropagate(batch, level) for level, batch in zip(levels, batches, strict=True)]
            for bucket in range(1, self.model.depth + 1):
                for buffer in self.buckets.of(bucket):
                    buffer.div_(max(1, self.averaging.divisor(levels, bucket)))
        self._weights.note(self._iteration, levels, self._samples)
        self._iteration += 1
        unreached = {p: p.grad for p in self.model.beyond(max(levels))}
        for parameter in unreached:
            parameter.grad = None
        self.optimiser.step()
        for parameter, gradient in unreached.items():
            parameter.grad = gradient
        return torch.stack(losses)

    def _weighted(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Leave weighted means over the workers in the buffers, also of gradients that are kept; return losses."""
        buckets = range(1, self.model.depth + 1)
        means = {bucket: [torch.zeros_like(buffer) for buffer in self.buckets.of(bucket)] for bucket in buckets}
        losses = []
        for worker, (level, batch) in enumerate(zip(self._levels, batches, strict=True)):
            self.buckets.begin(self.model.depth, _nobody)
            losses.append(self.model.backpropagate(batch, level))
            for bucket in buckets:
                if level >= bucket:
                    self._kept[worker, bucket] = [buffer.clone() for buffer in self.buckets.of(bucket)]
                weights = self._weights.of(self._iteration, self._levels, self._samples, bucket)
                if weights[worker]:
                    for mean, own in zip(means[bucket], self._kept[worker, bucket], strict=True):
                        mean.add_(own, alpha=weights[worker] / sum(weights))
        for bucket, found in means.items():
            for buffer, mean in zip(self.buckets.of(bucket), found, strict=True):
                buffer.copy_(mean)
        return losses


def _nobody(_: int) -> None:
    """Take an announcement; gradients of all workers add up in the same buffers, so nothing is sent."""
