"""GPUs that one job can be placed on: those of one type and memory that links join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.gpu_types import matching_types
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance import Performance


@dataclass(frozen=True, slots=True)
class GpuPool:
    """Servers with GPUs of one type and memory that links join.

    `number`: its place among the pools of the cluster. `kind`: number of its type and memory, in the order of the
    cluster. `widths`: numbers of GPUs of its servers, the widest first.
    """

    number: int
    kind: int
    gpu_type: str
    servers: tuple[int, ...]
    widths: tuple[int, ...]
    gpus: int


def pool_of_servers(cluster: Cluster, number: int, kind: int, servers: Sequence[int]) -> GpuPool:
    """Return servers of a cluster as a pool."""
    widths = tuple(sorted((cluster.servers[k].gpus for k in servers), reverse=True))
    return GpuPool(number, kind, cluster.servers[servers[0]].gpu_type, tuple(servers), widths, sum(widths))


def pools_of_cluster(cluster: Cluster, parts: Sequence[Sequence[int]]) -> tuple[GpuPool, ...]:
    """Return the pools of a cluster, by type and memory in the order of the servers, and by part within each."""
    kind_of = [(server.gpu_type, server.gpu_memory) for server in cluster.servers]
    groups = (
        (kind, own)
        for kind, found in enumerate(dict.fromkeys(kind_of))
        for part in parts
        if (own := [k for k in part if kind_of[k] == found])
    )
    return tuple(pool_of_servers(cluster, number, kind, own) for number, (kind, own) in enumerate(groups))


class PoolChoice:
    """A choice of pools that a job can run in, those of the type on which it is fastest first.

    `gpus_of`: numbers of the GPUs of each server. `mixed`: whether the GPUs of the cluster differ in type or memory.
    """

    def __init__(self, pools: Sequence[GpuPool], gpus_of: Sequence[range], performance: Performance) -> None:
        self._pools, self._gpus_of, self._performance = pools, gpus_of, performance
        self._types = tuple(dict.fromkeys(pool.gpu_type for pool in pools))
        self.mixed = len({pool.kind for pool in pools}) > 1
        self._found: dict[object, tuple[tuple[GpuPool, ...], ...]] = {}

    def of(self, job: TraceJob) -> tuple[tuple[GpuPool, ...], ...]:
        """Return the pools with enough GPUs of a type that `job` may have and can run on, in groups of one type.

        Groups stand in the order of the job's speed, the fastest first; equally fast ones in that of the cluster.
        """
        model = job.model if self.mixed else None
        key = (job.gpus, job.gpu_types, model, job.batch_size, job.min_gpus > 0)
        if key not in self._found:
            groups: dict[int, list[GpuPool]] = {}
            allowed = self.types_of(job)
            for pool in self._pools:
                if pool.gpus >= job.gpus and pool.gpu_type in allowed:
                    groups.setdefault(pool.kind, []).append(pool)
            order = self._fastest_first(job, groups.values()) if self.mixed else groups.values()
            self._found[key] = tuple(map(tuple, order))
        return self._found[key]

    def kinds_of(self, job: TraceJob) -> tuple[int, ...]:
        """Return the numbers of the types and memories that a job can run on, the fastest first."""
        return tuple(group[0].kind for group in self.of(job))

    def types_of(self, job: TraceJob) -> tuple[str, ...]:
        """Return the types of GPU of the cluster that a job may have."""
        if job.gpu_types is None:
            return self._types
        return tuple(name for asked in job.gpu_types for name in matching_types(asked, self._types))

    def most_gpus(self, job: TraceJob) -> int:
        """Return the most GPUs of one type and memory that there are of those that a job may have."""
        allowed, counts = self.types_of(job), Counter[int]()
        for pool in self._pools:
            counts[pool.kind] += pool.gpus if pool.gpu_type in allowed else 0
        return max(counts.values())

    def _fastest_first(self, job: TraceJob, groups: Iterable[list[GpuPool]]) -> Iterator[list[GpuPool]]:
        """Yield the groups that the job can run in, by its speed alone on as few servers as possible."""
        speeds = [(self._speed(job, group[0]), group) for group in groups]
        yield from (group for speed, group in sorted(speeds, key=lambda speed: -speed[0]) if speed)

    def _speed(self, job: TraceJob, pool: GpuPool) -> int:
        """Return the speed of a job on the widest servers of a pool, or 0 where it cannot run."""
        widest = sorted(pool.servers, key=lambda server: -len(self._gpus_of[server]))
        gpus = [gpu for server in widest for gpu in self._gpus_of[server]][: job.gpus]
        share = Share((0,), tuple(sorted(gpus)))
        if self._performance.refuses(share, [job]) is not None:
            return 0
        return self._performance.speeds(share, [job], [0])[0].rate
