"""Adaptive jobs of Sia's profiles (SOSP 2023): the batch size follows the placement and the epoch.

A job that may have fewer or more GPUs than it asks for takes the batch size with the greatest goodput, throughput times
statistical efficiency, by the fitted throughput model; it then runs at the speed that was measured. Other jobs keep
the batch size of their trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.epochs import Epochs, epochs
from jigsaw_opt.scheduling.performance.profiles import ApplicationProfile, BatchSplit
from jigsaw_opt.scheduling.performance.protocol import UNITS
from jigsaw_opt.scheduling.performance.throughput import Measured, ThroughputModel, fit

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats, Integers

_CANDIDATES = 50
"""Batch sizes that are compared, in geometric steps (AdaptDL)."""
_SLOWDOWN = {"cifar10": 1.8, "ncf": 1.5, "imagenet": 1.2, "yolov3": 1.2, "bert": 1.2, "deepspeech2": 1.2}
"""How much longer jobs took on the authors' machines than their profiles say; from Sia's simulator."""
_RESTART_US = {
    "cifar10": 50_000_000,
    "ncf": 15_000_000,
    "imagenet": 250_000_000,
    "yolov3": 80_000_000,
    "bert": 120_000_000,
    "deepspeech2": 25_000_000,
}
"""Time of a checkpoint and restart, measured by Sia's authors."""


@dataclass(frozen=True)
class Adaptive:
    """A model on one type of GPU, with its batch size free."""

    profile: ApplicationProfile

    @cached_property
    def throughput(self) -> ThroughputModel:
        """The throughput model fitted to all that was measured."""
        application = self.profile.application
        curves = [((len(key), sum(key)), curve) for key, curve in application.placements.items()]
        curves += application.scaling.items()
        return fit([Measured(*key, s.local_batch, s.step_s, s.sync_s) for key, curve in curves for s in curve])

    @cached_property
    def fewest_local(self) -> int:
        """Fewest samples that a GPU was measured with."""
        return min(curve[0].local_batch for curve in self.profile.application.placements.values())

    @cached_property
    def largest_local(self) -> int:
        """Most samples of a GPU in one pass."""
        return self.profile.application.largest_local_batch

    @property
    def most_gpus(self) -> int:
        """GPUs beyond which the largest batch leaves some of them too few samples."""
        return self.profile.largest_batch // self.fewest_local

    @cached_property
    def alone_rate(self) -> float:
        """Samples a second of one GPU at its largest batch."""
        curve = self.profile.application.placements[(1,)]
        return curve[-1].local_batch / max(sample.step_s for sample in curve)

    def gains(self, samples: Floats, epoch: int) -> Floats:
        """Return the progress of an iteration that a job expects in an epoch, by batch size (Pollux, equation 6).

        As in AdaptDL a job takes the gradient's statistics of one batch size, here of the smallest, for those of all.
        """
        application, smallest = self.profile.application, self.profile.smallest_batch
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
        fits = (gpus <= self.most_gpus) & (self.fewest_local <= local) & (local <= self.largest_local)
        value = np.where(fits, self.gains(samples, epoch) / step, 0.0)
        best = int(value.argmax())
        return float(value[best]), BatchSplit(int(local[best]), int(passes[best]), gpus)

    def _candidates(self, gpus: int) -> tuple[Integers, Integers]:
        """Return samples of a GPU and pass, and passes, of batches from the smallest to the largest."""
        import numpy as np

        least = max(self.profile.smallest_batch, self.fewest_local * gpus)
        share = np.geomspace(least, max(least, self.profile.largest_batch), _CANDIDATES) / gpus
        passes = np.ceil(share / self.largest_local - _ROUNDING)
        if gpus == 1:  # the noise of the gradient is estimated from at least two passes
            passes = np.where(share > self.profile.smallest_batch + _ROUNDING, np.maximum(passes, 2), passes)
        passes = np.maximum(passes, 1).astype(np.int64)
        return np.ceil(share / passes - _ROUNDING).astype(np.int64), passes


_ROUNDING = 1e-8


class Goodput(Epochs):
    """Progress in iterations of the smallest batch, at the batch size that is best for the placement and the epoch."""

    name = "goodput"

    def __init__(self, cluster: Cluster, profiles: Mapping[str, Mapping[str, ApplicationProfile]]) -> None:
        super().__init__(cluster, profiles)
        self.adaptive = {gpu: {name: Adaptive(p) for name, p in table.items()} for gpu, table in profiles.items()}
        self._goodputs: dict[
            tuple[str, str, int, tuple[tuple[int, int], ...], frozenset[Measured]], tuple[float, ...]
        ] = {}
        self._models_learned: dict[frozenset[Measured], ThroughputModel] = {}

    def restart_us(self, job: TraceJob) -> int | None:
        """Return the time of a restart as measured by Sia's authors; None for other models."""
        return _RESTART_US.get(job.model)

    def measured(self, job: TraceJob, share: Share, done: int) -> tuple[str, Measured]:
        """Return the type of GPU of a job's share, and what the job measures there in its present epoch."""
        gpu_type, placement = self._placement(share)
        batch = self._batch(job, gpu_type, placement, self._models[job.model].epoch(done))
        step_s, sync_s = self.profiles[gpu_type][job.model].iteration_s(
            placement, BatchSplit(batch.local, 1, batch.gpus)
        )
        return gpu_type, Measured(len(placement), batch.gpus, batch.local, step_s, sync_s)

    def goodputs(
        self,
        job: TraceJob,
        gpu_type: str,
        configurations: tuple[tuple[int, int], ...],
        done: int,
        seen: frozenset[Measured],
    ) -> tuple[float, ...]:
        """Return the progress a second that a job expects of configurations of a type; 0 where it cannot run.

        `seen`: what it has measured on this type of GPU, at least once.
        """
        epoch = self._models[job.model].epoch(done)
        key = (job.model, gpu_type, epoch, configurations, seen)
        if key not in self._goodputs:
            adaptive, model = self.adaptive[gpu_type][job.model], self._learned(seen)
            values = [adaptive.goodput(servers, gpus, epoch, model)[0] for servers, gpus in configurations]
            self._goodputs[key] = tuple(values)
        return self._goodputs[key]

    def _learned(self, seen: frozenset[Measured]) -> ThroughputModel:
        if seen not in self._models_learned:
            self._models_learned[seen] = fit(sorted(seen)).known_from(
                within=any(one.servers == 1 and one.gpus > 1 for one in seen),
                across=any(one.servers > 1 for one in seen),
            )
        return self._models_learned[seen]

    def runs_on(self, job: TraceJob, gpu_type: str) -> bool:
        """Return whether the job's model was measured on a type of GPU."""
        return job.model in self.adaptive[gpu_type]

    def most_gpus(self, job: TraceJob) -> int:
        """Return GPUs beyond which the largest batch leaves some of them too few samples, on any type."""
        return max(table[job.model].most_gpus for table in self.adaptive.values() if job.model in table)

    def alone_rate(self, job: TraceJob, gpu_type: str) -> float:
        """Return samples a second of one GPU of a type, as measured before the first run."""
        return self.adaptive[gpu_type][job.model].alone_rate

    def throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second at the batch size and number of GPUs that the job asks for; 0 on too few."""
        servers = [server.gpus for server in self.cluster.servers if server.gpu_type == gpu_type]
        if sum(servers) < job.gpus or job.model not in self.profiles[gpu_type]:
            return 0.0
        placement = self._packed(job, gpu_type)
        batch = self._fixed(job, gpu_type, placement)
        return 1 / (self.profiles[gpu_type][job.model].iteration_s(placement, batch)[0] * self._slowdown(job))

    def iterations_left(self, job: TraceJob, done: int) -> float:
        """Return iterations at the batch size of the trace until the job ends."""
        assert job.batch_size is not None
        profile, work = self._models[job.model], self.work(job)
        left = 0.0
        while done < work:
            epoch = profile.epoch(done)
            end = work if epoch + 1 == len(profile.ends) else min(work, profile.ends[epoch])
            left += (end - done) / UNITS / profile.gain(job.batch_size, epoch)
            done = end
        return left

    def _batch(self, job: TraceJob, gpu_type: str, placement: tuple[int, ...], epoch: int) -> BatchSplit:
        if job.min_gpus == 0:
            return self._fixed(job, gpu_type, placement)
        adaptive = self.adaptive[gpu_type][job.model]
        return adaptive.goodput(len(placement), sum(placement), epoch, adaptive.throughput)[1]

    def _slowdown(self, job: TraceJob) -> float:
        return _SLOWDOWN.get(job.model, 1.0)

    def _fixed(self, job: TraceJob, gpu_type: str, placement: tuple[int, ...]) -> BatchSplit:
        assert job.batch_size is not None
        most = self.adaptive[gpu_type][job.model].largest_local
        return self.profiles[gpu_type][job.model].spread(job.batch_size, sum(placement), most)


def goodput(source: Path | None, cluster: Cluster) -> Goodput:
    """Read the profiles of the folder `source` for the types of GPU of a cluster."""
    read = epochs(source, cluster)
    return Goodput(cluster, read.profiles)
