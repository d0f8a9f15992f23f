"""Jobs of Pollux's and Sia's profiles at the batch size that their trace states, from epoch to epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.readers.profiles.pollux import read_applications
from jigsaw_opt.errors import UsageError, missing_option
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.memo import memoised
from jigsaw_opt.scheduling.performance.profiles import ApplicationProfile, BatchSplit
from jigsaw_opt.scheduling.performance.protocol import UNITS, ByIterations, Speed, mixed_types, rate_of
from jigsaw_opt.text import nearest

_SECOND_US = 1_000_000


class Epochs(ByIterations):
    """Progress in iterations of the smallest batch: throughput of the placement times gain of the batch and epoch.

    `cluster`: whose GPU types are names in `profiles`; a job runs on GPUs of one type.
    """

    name = "epochs"
    slowdowns: Mapping[str, float] = {}
    """How much longer iterations of a model take than was measured."""

    def __init__(self, cluster: Cluster, profiles: Mapping[str, Mapping[str, ApplicationProfile]]) -> None:
        self.cluster = cluster
        self.figures = self.profiles = profiles
        missing = next((one.gpu_type for one in cluster.servers if one.gpu_type not in profiles), None)
        if missing is not None:
            message = f"no profiles on GPUs of type {missing!r}; {nearest(missing, sorted(profiles))}"
            raise UsageError(message, code="unknown-name", path="performance")
        self._server_of = cluster.gpus.server_of
        self._speeds: dict[tuple[str, str, tuple[int, ...], int, bool, int], Speed] = {}

    @cached_property
    def _models(self) -> dict[str, ApplicationProfile]:
        """A profile of each model, on the first type of GPU that has one."""
        return {name: p for table in reversed(list(self.profiles.values())) for name, p in table.items()}

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: a model without a profile, or a batch size beyond the validated ones.

        Models that need several GPUs for one replica are not covered.
        """
        profile = self._models.get(job.model)
        tables = [table[job.model] for table in self.profiles.values() if job.model in table]
        if any((1,) not in profile.application.placements for profile in tables):
            return f"model {job.model!r} was not measured on one GPU"
        if profile is None:
            return f"no model {job.model!r}; {nearest(job.model, sorted(self._models))}"
        if job.batch_size is None or not profile.smallest_batch <= job.batch_size <= profile.largest_batch:
            bounds = f"from {profile.smallest_batch} to {profile.largest_batch}"
            return f"batch size {job.batch_size} of {job.model!r} is not {bounds}"
        return None

    def work(self, job: TraceJob) -> int:
        """Return what the job states, or else the progress at the end of the last epoch."""
        if job.iterations is not None:
            return job.iterations * UNITS
        return self._models[job.model].ends[-1]

    def alone_us(self, job: TraceJob) -> int:
        """Return the time from epoch to epoch on as few servers as possible, of the first type that has a profile."""
        return self._time_us(replace(job, name="", submit_us=0, weight=1))

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a job cannot run on a share: it needs GPUs of one type to itself, and a profile on them.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if len(jobs) > 1:
            return "profiles are of jobs that run alone"
        gpu_type = self.cluster.gpus.types[share.gpus[0]]
        unknown = (
            None
            if jobs[0].model in self.profiles[gpu_type]
            else f"model {jobs[0].model!r} has no profile on {gpu_type}"
        )
        return mixed_types(share, self.cluster.gpus.types) or unknown

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the speed of the epoch that the job is in.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        epoch = self._models[jobs[0].model].epoch(done[0])
        return (self._speed(jobs[0], *self._placement(share), epoch),)

    def _placement(self, share: Share) -> tuple[str, tuple[int, ...]]:
        """Return the type of a share's GPUs, and how many of them each of its servers has."""
        servers = Counter(self._server_of[gpu] for gpu in share.gpus)
        return self.cluster.gpus.types[share.gpus[0]], tuple(servers.values())

    def _packed(self, job: TraceJob, gpu_type: str) -> tuple[int, ...]:
        """Return how many GPUs of a type a job has on each server, on as few as possible."""
        widest = max(server.gpus for server in self.cluster.servers if server.gpu_type == gpu_type)
        full, rest = divmod(job.gpus, widest)
        return (rest, *[widest] * full) if rest else (widest,) * full

    def _speed(self, job: TraceJob, gpu_type: str, placement: tuple[int, ...], epoch: int) -> Speed:
        assert job.batch_size is not None
        key = (job.model, gpu_type, placement, job.batch_size, job.min_gpus > 0, epoch)
        if key not in self._speeds:
            profile = self.profiles[gpu_type][job.model]
            batch = self._batch(job, gpu_type, placement, epoch)
            seconds, sync_s = profile.iteration_s(placement, batch)
            rate = rate_of(
                _SECOND_US * seconds * self.slowdowns.get(job.model, 1.0) / profile.gain(batch.samples, epoch)
            )
            last = epoch + 1 == len(profile.ends)
            until = None if last else profile.ends[epoch]
            self._speeds[key] = Speed(rate, until, sync_s / seconds if len(placement) > 1 else 0.0)
        return self._speeds[key]

    def _batch(self, job: TraceJob, gpu_type: str, placement: tuple[int, ...], epoch: int) -> BatchSplit:
        """Return how the batch of an iteration is spread."""
        assert job.batch_size is not None
        return self.profiles[gpu_type][job.model].spread(job.batch_size, sum(placement))

    @memoised
    def _time_us(self, job: TraceJob) -> int:
        gpu_type = next(name for name, table in self.profiles.items() if job.model in table)
        placement, done, time_us, work = self._packed(job, gpu_type), 0, 0, self.work(job)
        while done < work:
            epoch = self._models[job.model].epoch(done)
            speed = self._speed(job, gpu_type, placement, epoch)
            goal = work if speed.until is None else min(work, speed.until)
            time_us += -((done - goal) // speed.rate)
            done = goal
        return time_us


def epochs(source: Path | None, cluster: Cluster) -> Epochs:
    """Read the profiles of the folder `source` for the types of GPU of a cluster."""
    if source is None or not exists(source) or not source.is_dir():
        message = f"performance 'epochs' needs the folder of the profiles, as in epochs:FOLDER, not {source}"
        raise missing_option("performance", message)
    types = dict.fromkeys(server.gpu_type for server in cluster.servers)
    tables = {name: read_applications(source, name) for name in types}
    return Epochs(cluster, {gpu: {m: ApplicationProfile(a) for m, a in table.items()} for gpu, table in tables.items()})
