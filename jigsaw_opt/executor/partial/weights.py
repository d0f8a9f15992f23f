"""How much the gradient of each worker counts in the mean of a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from jigsaw_opt.errors import out_of_range


def contributor_share(levels: Sequence[int], samples: Sequence[int], bucket: int) -> float:
    """Return the share of the samples whose workers reach a bucket; a worker without a batch has level 0.

    `levels, samples`: of each worker.
    """
    total = sum(n for n, level in zip(samples, levels, strict=True) if level)
    return sum(n for n, level in zip(samples, levels, strict=True) if level >= bucket) / total


class GradientWeights:
    """The weights of the workers' gradients in the mean of each bucket, also of earlier gradients that are kept.

    `decay`: what the weight of a kept gradient is multiplied by for each iteration since then; 0 keeps none.
    """

    def __init__(self, decay: float = 0.0) -> None:
        if not 0 <= decay <= 1:
            raise out_of_range("kept_decay", f"the weight of a kept gradient decays by 0 to 1, not {decay}")
        self.decay = decay
        self._last: dict[tuple[int, int], tuple[int, int]] = {}

    def of(self, iteration: int, levels: Sequence[int], samples: Sequence[int], bucket: int) -> list[float]:
        """Return the weight of each worker: its samples, those of its kept gradient decayed, or 0 for no gradient.

        All are 0 where nobody reaches the bucket in this iteration.
        """
        weights = [float(n) if level >= bucket else 0.0 for n, level in zip(samples, levels, strict=True)]
        if not self.decay or not any(weights):
            return weights
        for worker, weight in enumerate(weights):
            if not weight and (worker, bucket) in self._last:
                last, n = self._last[worker, bucket]
                weights[worker] = n * self.decay ** (iteration - last)
        return weights

    def note(
        self, iteration: int, levels: Sequence[int], samples: Sequence[int], means: Iterable[tuple[int, Tensor]]
    ) -> None:
        """Note whose gradients have been kept in an iteration; `means`: buckets with mean gradients, in pieces."""
        if not self.decay:
            return
        lost = {bucket for bucket, mean in means if not mean.isfinite().all()}
        for worker, level in enumerate(levels):
            for bucket in range(2, level + 1):
                # Somebody's gradient may be the reason, and all processes know the mean alone.
                self._last.pop((worker, bucket), None)
                if bucket not in lost:
                    self._last[worker, bucket] = iteration, samples[worker]

    def __str__(self) -> str:
        """Return what the processes compare."""
        return f"{self.decay} {sorted(self._last.items())}"
