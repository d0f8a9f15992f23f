"""How noisy the gradients of each bucket are, and how far an iteration with fewer contributors gets.

With own gradients ``g_k`` of ``c`` contributors and their mean ``m``, the trace of the covariance of one worker's
gradient is estimated without bias by ``(mean |g_k|^2 - |m|^2) c / (c - 1)``, and the squared length of the true
gradient by ``|m|^2 - trace / c`` (McCandlish et al. 2018, appendix A). Both are averaged over iterations before they
are divided (Qiao et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isfinite, isnan, nan, sqrt

import torch
from torch import Tensor

from jigsaw_opt.errors import out_of_range, wrong_order
from jigsaw_opt.executor.partial.parts import aligned
from jigsaw_opt.problem.efficiency import PAYOFF_HEADS, Efficiency, Payoff, payoffs

_MEASURED = "measured on small networks trained from scratch, no way won for sure: docs/training-loop.md#does-spb-pay"
KEEP = 0.99
"""Weight of the estimates so far where a new one is added, so that about the last 100 count."""
_TOTAL = 1_000_000
_SHARES = 1000
"""Sum of the rounded weights: small, since models of solvers add up progress over all iterations."""


@dataclass(frozen=True, slots=True)
class BucketNoise:
    """The gradient noise of a bucket.

    `bucket`: its number, from 1 at the output. `noise_scale`: variance of one worker's gradient, summed over its
    numbers, over the squared length of the true gradient: with so many workers, half of the squared length of their
    mean is noise. ``inf`` where that length cannot be told from 0, and ``nan`` where nothing is known. `error`: its
    standard error. `weight`: squared length of the true gradient, the bucket's part in the decrease of the loss by
    steps of SGD. `estimates`: number of estimates that were averaged. `alone`: whether they compare a lone gradient
    with the next one that is measured, which counts what the steps between change as noise, so that there may be less.
    """

    bucket: int
    noise_scale: float
    error: float
    weight: float
    estimates: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class NoiseEstimate:
    """The gradient noise of a model; as text it is a table.

    `buckets`: the noise of each bucket, from bucket 1. `times`: time of a block by level, in any unit, and `workers`:
    number of workers, from which `payoffs` tells what pays; none and 0 where they are not known. `fixed_share`: share
    of a block's time at full depth that does not fall with the batch, from 0 to 1; None where it is not known, so that
    time is assumed to be in proportion to samples.
    """

    buckets: tuple[BucketNoise, ...]
    times: tuple[int, ...] = ()
    workers: int = 0
    fixed_share: float | None = None

    @property
    def is_known(self) -> bool:
        """Return whether there is an estimate for each bucket, and a gradient above the noise in one of them."""
        return not any(isnan(own.noise_scale) for own in self.buckets) and any(own.weight for own in self.buckets)

    def progress(self, levels: Sequence[int], batch: float = 1) -> float:
        """Return how far an iteration with these levels gets, beside one at full depth, from 0 to 1.

        It is the mean over the buckets by their weights, where each number of contributors has the best rate for it
        (`Efficiency.progress`, of `rounded`). There may be other numbers of workers than in the training. `batch`:
        share of its batch that each worker takes. Raises `UsageError` if some bucket has no estimate yet, no gradient
        exceeds its noise, or a level is out of range.
        """
        efficiency = self.rounded()
        if not levels or not all(1 <= level <= len(self.buckets) for level in levels):
            told = f"levels are one or more integers from 1 to {len(self.buckets)}, one for each worker"
            raise out_of_range("levels", f"{told}, not {list(levels)}")
        return efficiency.progress(levels, Fraction(batch)) / efficiency.most

    def rounded(self) -> Efficiency:
        """Return what a model of an instance says of it, in whole numbers; raise `UsageError` as `progress`."""
        self._require_known()
        total = sum(own.weight for own in self.buckets)
        weights = tuple(round(_SHARES * own.weight / total) for own in self.buckets)
        # A noise scale that is not finite has weight 0, so the number for it is of no importance.
        scales = (own.noise_scale if isfinite(own.noise_scale) else _TOTAL for own in self.buckets)
        return Efficiency(tuple(round(1000 * min(scale, _TOTAL)) for scale in scales), weights)

    def interval(self) -> tuple[Efficiency, Efficiency]:
        """Return `rounded` with all noise scales two standard errors lower, and so much higher.

        A scale that may be less, as that of lone gradients, is 0 in the first. Raises `UsageError` as `progress`.
        """
        low, high = (replace(self, buckets=tuple(_shifted(own, by) for own in self.buckets)) for by in (-2, 2))
        return low.rounded(), high.rounded()

    def payoffs(self, times: Sequence[int] = (), workers: int = 0) -> tuple[Payoff, ...]:
        """Return what ways of choosing levels cost and gain; raise `UsageError` as `progress`, or if times are unknown.

        Whether levels pay is sure where both ends of the `interval` say the same. `times, workers`: time of a block by
        level, and number of workers; by default the estimate's own.
        """
        times, workers = times or self.times, workers or self.workers
        if len(times) != len(self.buckets) or min(*times, workers) < 1:
            message = "give a time of at least 1 for each level, and the number of workers"
            raise wrong_order("times", message)
        fixed = None if self.fixed_share is None else Fraction(round(1000 * self.fixed_share), 1000)
        return payoffs(self.rounded(), times, workers, fixed, self.interval())

    def _require_known(self) -> None:
        if not self.is_known:
            unknown = [str(own.bucket) for own in self.buckets if isnan(own.noise_scale)]
            where = f"buckets {', '.join(unknown)} have no estimate yet" if unknown else "no gradient exceeds its noise"
            raise wrong_order("efficiency", f"the gradient noise is not known: {where}")

    def __str__(self) -> str:
        total = sum(own.weight for own in self.buckets if own.weight > 0) or 1.0
        rows = [("bucket", "noise scale", "error", "weight", "estimates")]
        for own in self.buckets:
            share = "?" if isnan(own.noise_scale) else f"{own.weight / total:.1%}"
            scale = "?" if isnan(own.noise_scale) else f"{'<= ' * own.alone}{own.noise_scale:.3g}"
            error = f"{own.error:.2g}" if isfinite(own.error) else "?"
            rows.append((str(own.bucket), scale, error, share, str(own.estimates)))
        lines = aligned(rows)
        if self.times and self.is_known:
            table = [PAYOFF_HEADS, *(payoff.cells for payoff in self.payoffs())]
            told = "assumes that time is in proportion to samples"
            if self.fixed_share is not None:
                told = f"{self.fixed_share:.1%} of the time of a block at full depth does not fall with the batch"
            lines += ["", *aligned(table, left=len(PAYOFF_HEADS) - 1), "", f"by a smaller batch: {told}", _MEASURED]
        return "\n".join(lines)


def _shifted(own: BucketNoise, by: int) -> BucketNoise:
    """Return the noise so many standard errors away."""
    scale = 0.0 if own.alone and by < 0 else max(0.0, own.noise_scale + by * own.error)
    return replace(own, noise_scale=scale) if isfinite(own.noise_scale) else own


class _Moments:
    """Weighted means of two estimates, of trace and squared length, and of their products."""

    def __init__(self, keep: float) -> None:
        self.count, self._keep, self._weight, self._weight_of_squares = 0, keep, 0.0, 0.0
        self._sums = [0.0] * 5

    def add(self, trace: float, square: float) -> None:
        if not isfinite(trace + square):  # as where a scaler of the loss has gone too far
            return
        new = (trace, square, trace * trace, trace * square, square * square)
        self.count += 1
        self._weight = self._keep * self._weight + 1
        self._weight_of_squares = self._keep**2 * self._weight_of_squares + 1
        self._sums = [self._keep * known + value for known, value in zip(self._sums, new, strict=True)]

    def noise(self, bucket: int) -> BucketNoise:
        """Return the ratio of the means, with the standard error of a ratio."""
        if not self.count:
            return BucketNoise(bucket, nan, nan, 0.0, 0)
        trace, square, trace_trace, trace_square, square_square = (value / self._weight for value in self._sums)
        if square <= 0:
            return BucketNoise(bucket, inf, inf, 0.0, self.count)
        scale = max(0.0, trace / square)
        spread = max(0.0, trace_trace - 2 * scale * trace_square + scale**2 * square_square)
        effective = self._weight**2 / self._weight_of_squares
        error = sqrt(spread / (effective - 1)) / square if effective > 1.5 else inf
        return BucketNoise(bucket, scale, error, square, self.count)


class GradientNoise:
    """The estimate of gradient noise that a training keeps.

    `every`: after how many iterations, again and again, two of them are looked at; 0 for never. `keep`: weight of the
    estimates so far where a new one is added.
    """

    def __init__(self, depth: int, every: int = 1, keep: float = KEEP) -> None:
        self.every = every
        self._moments, self._alone = ([_Moments(keep) for _ in range(depth)] for _ in range(2))
        self._earlier: dict[int, tuple[float, list[Tensor]]] = {}

    def is_due(self, iteration: int) -> bool:
        """Return whether an iteration is looked at: two in a row, for a lone contributor is compared with its next."""
        return bool(self.every) and iteration % self.every < 2

    def forget_earlier(self) -> None:
        """Forget gradients that wait for the next ones, for parameters are others now."""
        self._earlier.clear()

    def observe(self, bucket: int, count: int, own_square: float, mean: Sequence[Tensor]) -> None:
        """Take account of the gradients of a bucket in an iteration.

        `count`: number of contributors. `own_square`: the mean of their squared lengths; not used of one alone. `mean`:
        their mean gradient, in pieces.
        """
        square = sum(map(squared_length, mean))
        if count > 1:
            trace = (own_square - square) * count / (count - 1)
            self._moments[bucket - 1].add(trace, square - trace / count)
        elif count and (earlier := self._earlier.pop(bucket, None)) is not None:
            # Two iterations are two samples of about the same gradient, whose product is its squared length.
            both = sum(_product(own, other) for own, other in zip(mean, earlier[1], strict=True))
            self._alone[bucket - 1].add((square + earlier[0]) / 2 - both, both)
        elif count:
            self._earlier[bucket] = square, [piece.detach().clone() for piece in mean]

    def estimate(self) -> NoiseEstimate:
        """Return what is known now: by iterations of several contributors, where a bucket has had any."""
        pairs = enumerate(zip(self._moments, self._alone, strict=True), 1)
        found = (a.noise(at) if a.count else replace(b.noise(at), alone=b.count > 0) for at, (a, b) in pairs)
        return NoiseEstimate(tuple(found))


def squared_length(gradient: Tensor) -> float:
    """Return the squared length of a gradient; not a number for half precision, whose squares it cannot hold."""
    return nan if gradient.dtype is torch.float16 else _product(gradient, gradient)


def _product(own: Tensor, other: Tensor) -> float:
    if own.is_complex():
        own, other = torch.view_as_real(own), torch.view_as_real(other)
    if own.dtype is torch.bfloat16:  # its sums are rounded too much
        own, other = own.float(), other.float()
    return float(torch.dot(own.reshape(-1), other.reshape(-1)))
