"""What an iteration at lower levels is worth: its progress, beside one at full depth (specification: efficiency)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.costs import contributors
from jigsaw_opt.problem.rules.part import CheckedPart

MILLION = 1_000_000
"""Progress of a bucket to which all workers contribute."""
_NOISE_UNIT = 1000


@dataclass(frozen=True, slots=True)
class Efficiency(CheckedPart, definition="efficiency"):
    """How noisy the gradients of a model are, and how much each bucket matters.

    An average of noisy gradients is worth what McCandlish et al. (2018, equation 2.10) say of a batch: with noise scale
    ``f``, in batches of a worker, ``c`` workers make ``c / (c + f)`` of the progress without noise.

    Parameters
    ----------
    noise_scale
        By bucket, the variance of a worker's gradient, summed over its numbers, over the squared length of its mean,
        in thousandths.
    weight
        By bucket, its part in the decrease of the loss: the squared length of the mean gradient, in any unit.
    """

    noise_scale: tuple[int, ...]
    weight: tuple[int, ...]

    def of_bucket(self, bucket: int, count: int, workers: int) -> int:
        """Return the progress of a bucket, beside that with all workers as contributors, in millionths, rounded down.

        Parameters
        ----------
        bucket
            Its number, from 1.
        count, workers
            Number of contributors, from 0, and of workers.
        """
        noise = self.noise_scale[bucket - 1]
        if not count:
            return 0
        return MILLION * count * (_NOISE_UNIT * workers + noise) // (workers * (_NOISE_UNIT * count + noise))

    def progress(self, levels: Sequence[int]) -> int:
        """Return the progress of an iteration with these levels of the workers, in millionths of `most`'s unit.

        It is the sum over the buckets of progress times weight; at full depth it is `most`.
        """
        return sum(
            weight * self.of_bucket(bucket, contributors(levels, bucket), len(levels))
            for bucket, weight in enumerate(self.weight, 1)
        )

    @property
    def most(self) -> int:
        """Progress of an iteration at full depth."""
        return MILLION * sum(self.weight)
