"""Arithmetic of Pollux's profiles: step times on any placement, gain of a batch, progress by epoch.

After Pollux (OSDI 2021), sections 3.1 and 3.2, and its simulator. That one interpolates placements that were not
measured linearly over a triangulation; here they are interpolated between the nearest numbers of servers at the
same number of GPUs a server.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from jigsaw_opt.documents.readers.profiles.pollux import Application, Curve
from jigsaw_opt.scheduling.performance.protocol import UNITS
from jigsaw_opt.scheduling.performance.throughput import Measured, ThroughputModel, fit

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers

# The authors' simulator holds yolov3 to 8 samples a GPU though more were measured.
_LARGEST_LOCAL = {"yolov3": 8}
_CANDIDATES = 50
"""Batch sizes that are compared, in geometric steps (AdaptDL)."""
_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """The split of a batch: samples a GPU and pass, and passes whose gradients add up before an exchange."""

    local: int
    passes: int
    gpus: int

    @property
    def samples(self) -> int:
        """Samples of an iteration."""
        return self.local * self.passes * self.gpus


@dataclass(frozen=True)
class ApplicationProfile:
    """Times, gains and progress that follow from the measurements of an application."""

    application: Application

    @cached_property
    def smallest_batch(self) -> int:
        """The batch size whose iterations are the unit of progress."""
        return min(self.application.epochs)

    @cached_property
    def largest_batch(self) -> int:
        """The largest batch size that was validated."""
        return max(self.application.epochs)

    @cached_property
    def largest_local(self) -> int:
        """Most samples of a GPU in one pass."""
        return _LARGEST_LOCAL.get(self.application.name, self.application.largest_local_batch)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Units of work at the end of each epoch: of the batch sizes the least."""
        rows = zip(*self.application.epochs.values(), strict=False)
        return tuple(round(min(epoch.progress for epoch in row) * UNITS) for row in rows)

    def epoch(self, done: int) -> int:
        """Return the epoch, from 0, in which a job is that has done so many units of work."""
        return min(bisect_right(self.ends, done), len(self.ends) - 1)

    def spread(self, batch_size: int, gpus: int, most: int | None = None) -> BatchSplit:
        """Return a batch on a number of GPUs, with as few passes as memory allows (Pollux's ``update_local_bsz``).

        `most`: the most samples of a GPU in one pass; None for `largest_local`.
        """
        share = -(-batch_size // gpus)
        passes = -(-share // (most or self.largest_local))
        if gpus == 1 and batch_size > self.smallest_batch:
            passes = max(2, passes)  # the noise of the gradient is estimated from at least two
        # Rounding up must not lift the whole batch above the largest one.
        local = min(-(-share // passes), self.largest_batch // (gpus * passes))
        return BatchSplit(max(1, local), passes, gpus)

    def iteration_s(self, placement: Sequence[int], batch: BatchSplit) -> tuple[float, float]:
        """Return seconds of an iteration by GPUs of each server, and those in which gradients are exchanged."""
        step, sync = self._step(placement, batch.local)
        return step + (batch.passes - 1) * (step - sync), sync

    def gain(self, samples: int, epoch: int) -> float:
        """Return the progress of an iteration in an epoch, in iterations of the smallest batch (Pollux, equation 6).

        `epoch`: number of the epoch, from 0.
        """
        scale = samples / self.smallest_batch
        sqr, var = self._gradient(samples, epoch)
        return (var + sqr) / (var / scale + sqr)

    @cached_property
    def throughput(self) -> ThroughputModel:
        """The throughput model fitted to all that was measured."""
        application = self.application
        curves = [((len(key), sum(key)), curve) for key, curve in application.placements.items()]
        curves += application.scaling.items()
        return fit([Measured(*key, s.local_batch, s.step_s, s.sync_s) for key, curve in curves for s in curve])

    @cached_property
    def fewest_local(self) -> int:
        """Fewest samples that a GPU was measured with."""
        return min(curve[0].local_batch for curve in self.application.placements.values())

    @property
    def most_gpus(self) -> int:
        """GPUs beyond which the largest batch leaves some of them too few samples."""
        return self.largest_batch // self.fewest_local

    @cached_property
    def alone_rate(self) -> float:
        """Samples a second of one GPU at its largest batch."""
        curve = self.application.placements[(1,)]
        return curve[-1].local_batch / max(sample.step_s for sample in curve)

    def gains(self, samples: Floats, epoch: int) -> Floats:
        """Return the progress of an iteration that a job expects in an epoch, by batch size (Pollux, equation 6).

        As in AdaptDL a job takes the gradient's statistics of one batch size, here of the smallest, for those of all.
        """
        application, smallest = self.application, self.smallest_batch
        measured = application.epochs[smallest][epoch]
        square, variance = measured.grad_sqr, measured.grad_var
        return (variance + square) / (variance * smallest / samples + square)

    def goodput(self, servers: int, gpus: int, epoch: int, model: ThroughputModel) -> tuple[float, BatchSplit]:
        """Return the greatest progress a second on some GPUs by a throughput model, and the batch that gives it.

        Without any batch that fits the goodput is 0.

        `epoch`: number of the epoch, from 0.
        """
        import numpy as np

        local, passes = self._candidates(gpus)
        samples = (gpus * local * passes).astype(float)
        step = model.step_s(servers, gpus, local) + (passes - 1) * model.compute_s(local)
        fits = (gpus <= self.most_gpus) & (self.fewest_local <= local) & (local <= self.application.largest_local_batch)
        value = np.where(fits, self.gains(samples, epoch) / step, 0.0)
        best = int(value.argmax())
        return float(value[best]), BatchSplit(int(local[best]), int(passes[best]), gpus)

    def _candidates(self, gpus: int) -> tuple[Integers, Integers]:
        """Return samples of a GPU and pass, and passes, of batches from the smallest to the largest."""
        import numpy as np

        least = max(self.smallest_batch, self.fewest_local * gpus)
        share = np.geomspace(least, max(least, self.largest_batch), _CANDIDATES) / gpus
        passes = np.ceil(share / self.application.largest_local_batch - _ROUNDING)
        if gpus == 1:  # the noise of the gradient is estimated from at least two passes
            passes = np.where(share > self.smallest_batch + _ROUNDING, np.maximum(passes, 2), passes)
        passes = np.maximum(passes, 1).astype(np.int64)
        return np.ceil(share / passes - _ROUNDING).astype(np.int64), passes

    def _gradient(self, samples: int, epoch: int) -> tuple[float, float]:
        """Return the squared norm and variance of the gradient, between the two batch sizes that were measured."""

        def gradient(size: int) -> tuple[float, float]:
            measured = self.application.epochs[size][epoch]
            return measured.grad_sqr, measured.grad_var

        return _between(self.application.epochs, samples, gradient)

    def _step(self, placement: Sequence[int], local: float) -> tuple[float, float]:
        counts = tuple(filter(None, placement))
        rotated = min(counts[k:] + counts[:k] for k in range(len(counts)))
        curve = self.application.placements.get(rotated)
        if curve is not None:
            return _on_curve(curve, local)
        return self._scaled(len(counts), sum(counts), local)

    def _scaled(self, servers: int, gpus: int, local: float) -> tuple[float, float]:
        """Interpolate between the measured numbers of servers on either side, at the same number of GPUs a server."""
        known = {key[0] for key in self.application.scaling}
        return _between(known, servers, lambda count: self._at_servers(count, gpus * count / servers, local))

    def _at_servers(self, servers: int, gpus: float, local: float) -> tuple[float, float]:
        curves = {key[1]: curve for key, curve in self.application.scaling.items() if key[0] == servers}
        return _between(curves, gpus, lambda count: _on_curve(curves[count], local))


def _on_curve(curve: Curve, local: float) -> tuple[float, float]:
    """Interpolate between the measured batches on either side; beyond them a GPU's compute grows with its samples."""
    first, last = curve[0], curve[-1]
    if local >= last.local_batch:
        return (last.step_s - last.sync_s) * local / last.local_batch + last.sync_s, last.sync_s
    if local <= first.local_batch:
        return first.step_s, first.sync_s
    high = next(k for k, sample in enumerate(curve) if sample.local_batch >= local)
    low_sample, high_sample = curve[high - 1], curve[high]
    share = (local - low_sample.local_batch) / (high_sample.local_batch - low_sample.local_batch)
    return _mix((low_sample.step_s, low_sample.sync_s), (high_sample.step_s, high_sample.sync_s), share)


def _mix(low: tuple[float, float], high: tuple[float, float], share: float) -> tuple[float, float]:
    return low[0] + share * (high[0] - low[0]), low[1] + share * (high[1] - low[1])


def _between(known: Collection[int], at: float, values: Callable[[int], tuple[float, float]]) -> tuple[float, float]:
    """Interpolate between the known points on either side of a point; beyond all of them the outermost counts."""
    points = sorted(known)
    low = points[max(0, bisect_right(points, at) - 1)]
    high = points[min(bisect_left(points, at), len(points) - 1)]
    return _mix(values(low), values(high), (at - low) / (high - low) if high > low else 0.0)
