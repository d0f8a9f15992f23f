"""Arithmetic of Pollux's profiles: step times on any placement, gain of a batch, progress by epoch.

After Pollux (OSDI 2021), sections 3.1 and 3.2, and its simulator. That one interpolates placements that were not
measured linearly over a triangulation; here they are interpolated between the nearest numbers of servers at the
same number of GPUs a server.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from jigsaw_opt.documents.readers.profiles.pollux import Application, Curve
from jigsaw_opt.scheduling.performance.protocol import UNITS

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers

_TINY = 1e-8
_STEPS = 60
_FLOOR = 1e-9
"""Added to the diagonal of the normal equations; keeps parameters in place of which no measurement tells anything."""
_ENOUGH = 1e-4
"""Relative gain of a step at which the fit ends."""
_STUCK = 1e6
_LARGEST_GAMMA = 10.0
_OVERLAP_WEIGHT = 0.03
"""A smaller gamma is preferred where the measurements do not tell, as in AdaptDL (10^-3 of its square)."""


class Measured(NamedTuple):
    """One measurement: servers, GPUs and samples a GPU; seconds of an iteration, and those of them in the exchange."""

    servers: int
    gpus: int
    local: int
    step_s: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """Seconds of an iteration: compute grows with the samples of a GPU, the exchange with the GPUs beyond two.

    ``T_grad = compute + per_sample * b``, ``T_sync = fixed + per_gpu * max(K - 2, 0)`` on one server or over several,
    and ``T = (T_grad^gamma + T_sync^gamma)^(1/gamma)``, where gamma from 1 to 10 says how far they overlap.
    """

    compute: float
    per_sample: float
    across: float
    across_per_gpu: float
    within: float
    within_per_gpu: float
    gamma: float

    def compute_s(self, local: Any) -> Any:
        """Return seconds of a pass over `local` samples; arrays are taken element by element, here and below."""
        return self.compute + self.per_sample * local

    def exchange_s(self, servers: Any, gpus: Any) -> Any:
        """Return seconds of the exchange of gradients."""
        import numpy as np

        beyond = np.maximum(gpus - 2, 0)
        several = self.across + self.across_per_gpu * beyond
        one = self.within + self.within_per_gpu * beyond
        return np.where(servers > 1, several, np.where(gpus > 1, one, _TINY))

    def step_s(self, servers: Any, gpus: Any, local: Any) -> Any:
        """Return seconds of an iteration of one pass."""
        compute, exchange = self.compute_s(local), self.exchange_s(servers, gpus)
        return (compute**self.gamma + exchange**self.gamma) ** (1 / self.gamma)

    def known_from(self, within: bool, across: bool) -> ThroughputModel:
        """Return the model as far as a job knows it from the placements that it has had.

        What was never measured is taken as perfect scaling; exchange over several servers is at least 1.1 times that
        within one (AdaptDL's prior).
        """
        known = self
        if not within:
            known = replace(known, within=_TINY, within_per_gpu=_TINY)
        if not across:
            known = replace(known, across=1.1 * known.within, across_per_gpu=1.1 * known.within_per_gpu)
        return known


def fit(measured: Sequence[Measured]) -> ThroughputModel:
    """Return the model with the least squared logarithmic errors of compute and of whole iterations.

    By Levenberg and Marquardt's method over the logarithms of the times, which keeps them positive.
    """
    import numpy as np

    columns = [np.array(column, dtype=float) for column in zip(*measured, strict=True)]
    point = np.array([np.log(0.1), np.log(0.01)] * 3 + [-4.0])
    errors = _errors(point, columns)
    damping = 1.0
    for _ in range(_STEPS):
        slopes = _slopes(point, errors, columns)
        normal = slopes.T @ slopes
        # Damping in proportion to the diagonal makes the step independent of the scale of each parameter.
        damped = normal + damping * np.diag(np.diag(normal)) + _FLOOR * np.eye(len(point))
        step = np.linalg.solve(damped, -slopes.T @ errors)
        # At most 2 a step, a factor of e^2 for times: the slopes hold only nearby.
        moved = point + np.clip(step, -2, 2)
        found = _errors(moved, columns)
        gain = 1 - float(found @ found) / max(float(errors @ errors), _FLOOR**2)
        if gain > 0:
            point, errors, damping = moved, found, damping / 3
        else:
            damping *= 4
        if 0 <= gain < _ENOUGH or damping > _STUCK:
            break
    return _model(point)


def _model(point: Floats) -> ThroughputModel:
    import numpy as np

    # A logistic function keeps gamma between 1 and its largest value, as exponentials keep times positive.
    gamma = 1 + (_LARGEST_GAMMA - 1) / (1 + np.exp(-point[6:]))
    return ThroughputModel(*np.concatenate([np.exp(np.clip(point[:6], -18, 5)), gamma]).tolist())


def _errors(point: Floats, columns: Sequence[Floats]) -> Floats:
    import numpy as np

    servers, gpus, local, step, sync = columns
    model = _model(point)
    # Differences of logarithms are relative errors: short iterations count as much as long ones.
    compute = np.log(model.compute_s(local) / np.maximum(step - sync, _TINY))
    whole = np.log(model.step_s(servers, gpus, local) / step)
    size = np.sqrt(len(step))
    return np.concatenate([compute / size, whole / size, [_OVERLAP_WEIGHT * (model.gamma - 1)]])


def _slopes(point: Floats, errors: Floats, columns: Sequence[Floats]) -> Floats:
    import numpy as np

    change = 1e-5
    moved = point + change * np.eye(len(point))
    return np.array([(_errors(one, columns) - errors) / change for one in moved]).T


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
