"""Adaptive jobs of Sia's profiles (SOSP 2023): the batch size follows the placement and the epoch.

A job that may have fewer or more GPUs than it asks for takes the batch size with the greatest goodput, throughput times
statistical efficiency, by the fitted throughput model; it then runs at the speed that was measured. Other jobs keep
the batch size of their trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.memo import memoised
from jigsaw_opt.scheduling.performance.epochs import Epochs, epochs
from jigsaw_opt.scheduling.performance.profiles import BatchSplit, Measured, ThroughputModel, fit
from jigsaw_opt.scheduling.performance.protocol import UNITS

_SLOWDOWN = {"cifar10": 1.8, "ncf": 1.5, "imagenet": 1.2, "yolov3": 1.2, "bert": 1.2, "deepspeech2": 1.2}
"""How much longer jobs took on the authors' machines than their profiles say; from Sia's simulator."""
_RESTART_S = {"cifar10": 50, "ncf": 15, "imagenet": 250, "yolov3": 80, "bert": 120, "deepspeech2": 25}
"""Seconds of a checkpoint and restart, measured by Sia's authors."""


class Goodput(Epochs):
    """Progress in iterations of the smallest batch, at the batch size that is best for the placement and the epoch."""

    name = "goodput"
    slowdowns = _SLOWDOWN

    def restart_us(self, job: TraceJob) -> int | None:
        """Return the time of a restart as measured by Sia's authors; None for other models."""
        return _RESTART_S[job.model] * 1_000_000 if job.model in _RESTART_S else None

    def measured(self, job: TraceJob, share: Share, done: int) -> tuple[str, Measured]:
        """Return the type of GPU of a job's share, and what the job measures there in its present epoch."""
        gpu_type, placement = self._placement(share)
        batch = self._batch(job, gpu_type, placement, self._models[job.model].epoch(done))
        one_pass = BatchSplit(batch.local, 1, batch.gpus)
        step_s, sync_s = self.profiles[gpu_type][job.model].iteration_s(placement, one_pass)
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
        return self._goodputs(job.model, gpu_type, self._models[job.model].epoch(done), configurations, seen)

    @memoised
    def _goodputs(
        self, name: str, gpu_type: str, epoch: int, configurations: Sequence[tuple[int, int]], seen: frozenset[Measured]
    ) -> tuple[float, ...]:
        profile, model = self.profiles[gpu_type][name], self._learned(seen)
        return tuple(profile.goodput(servers, gpus, epoch, model)[0] for servers, gpus in configurations)

    @memoised
    def _learned(self, seen: frozenset[Measured]) -> ThroughputModel:
        within = any(one.servers == 1 and one.gpus > 1 for one in seen)
        return fit(sorted(seen)).known_from(within, across=any(one.servers > 1 for one in seen))

    def runs_on(self, job: TraceJob, gpu_type: str) -> bool:
        """Return whether the job's model was measured on a type of GPU."""
        return job.model in self.profiles[gpu_type]

    def most_gpus(self, job: TraceJob) -> int:
        """Return GPUs beyond which the largest batch leaves some of them too few samples, on any type."""
        return max(table[job.model].most_gpus for table in self.profiles.values() if job.model in table)

    def alone_rate(self, job: TraceJob, gpu_type: str) -> float:
        """Return samples a second of one GPU of a type, as measured before the first run."""
        return self.profiles[gpu_type][job.model].alone_rate

    def throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second at the batch size and number of GPUs that the job asks for; 0 on too few."""
        servers = [server.gpus for server in self.cluster.servers if server.gpu_type == gpu_type]
        if sum(servers) < job.gpus or job.model not in self.profiles[gpu_type]:
            return 0.0
        placement = self._packed(job, gpu_type)
        batch = self._fixed(job, gpu_type, placement)
        seconds, _ = self.profiles[gpu_type][job.model].iteration_s(placement, batch)
        return 1 / (seconds * self.slowdowns.get(job.model, 1.0))

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
        profile = self.profiles[gpu_type][job.model]
        return profile.goodput(len(placement), sum(placement), epoch, profile.throughput)[1]

    def _fixed(self, job: TraceJob, gpu_type: str, placement: tuple[int, ...]) -> BatchSplit:
        assert job.batch_size is not None
        profile = self.profiles[gpu_type][job.model]
        return profile.spread(job.batch_size, sum(placement), profile.application.largest_local_batch)


def goodput(source: Path | None, cluster: Cluster) -> Goodput:
    """Read the profiles of the folder `source` for the types of GPU of a cluster."""
    return Goodput(cluster, epochs(source, cluster).profiles)
