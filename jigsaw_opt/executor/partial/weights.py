"""How much the gradient of each worker counts in the mean of a bucket."""

from __future__ import annotations

from collections.abc import Sequence


def contributor_share(levels: Sequence[int], samples: Sequence[int], bucket: int) -> float:
    """Return the share of the samples whose workers reach a bucket; a worker without a batch has level 0.

    `levels, samples`: of each worker.
    """
    total = sum(n for n, level in zip(samples, levels, strict=True) if level)
    return sum(n for n, level in zip(samples, levels, strict=True) if level >= bucket) / total
