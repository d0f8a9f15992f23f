"""Measured iterations a second by kind of job and GPU type, alone or in pairs on the same GPUs (Gavel, OSDI 2020)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.readers.gavel import GavelJobType, Throughputs, read_throughputs
from jigsaw_opt.errors import UsageError, missing_option
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Share
from jigsaw_opt.scheduling.performance.protocol import ByIterations, Speed, mixed_types, rate_of

_SECOND_US = 1_000_000
_SPREAD = "_unconsolidated"


class Table(ByIterations):
    """Jobs on as many GPUs as they ask for, at measured throughputs.

    `cluster`: whose GPU types are names in `throughputs`.
    """

    name = "table"

    def __init__(self, cluster: Cluster, throughputs: Throughputs) -> None:
        self.cluster = cluster
        self.figures = self.throughputs = throughputs
        self._server_of = cluster.gpus.server_of
        self._counts = Counter(cluster.gpus.types)

    def unknown(self, job: TraceJob) -> str | None:
        """Return what is unknown of a job: its iterations, or a measurement on any GPU type of the cluster."""
        if job.iterations is None:
            return "has no number of iterations"
        if not any(self.throughput(job, gpu_type) > 0 for gpu_type in self._counts):
            enough = [name for name, count in self._counts.items() if count >= job.gpus]
            where = f"was not measured on {' or '.join(enough)}" if enough else "finds as many of no type"
            return f"{job.model!r} on {job.gpus} GPUs {where}"
        return None

    def alone_us(self, job: TraceJob) -> int:
        """Return the time of all its work alone, on the type of GPU on which it is fastest."""
        assert job.iterations is not None
        fastest = max(self.throughput(job, gpu_type) for gpu_type in self._counts)
        return round(job.iterations * _SECOND_US / fastest)

    def throughput(self, job: TraceJob, gpu_type: str) -> float:
        """Return iterations a second alone on a GPU type, on as few servers as possible; 0 if not measured there.

        Also 0 where the cluster has fewer GPUs of the type than the job asks for.
        """
        rates = self.throughputs.get(gpu_type, {}).get(GavelJobType(job.model, job.gpus), {})
        return rates[None][0] if None in rates and self._counts[gpu_type] >= job.gpus else 0.0

    def refuses(self, share: Share, jobs: Sequence[TraceJob]) -> str | None:
        """Return why a share is refused: it has one job, or a measured pair, on GPUs of one type.

        The reason, or None where they can.

        `jobs`: the jobs, in the order of ``share.jobs``.
        """
        if any(len(share.gpus) != job.gpus for job in jobs):
            return f"throughputs are those of as many GPUs as jobs ask for, not of {len(share.gpus)}"
        if (mixed := mixed_types(share, self.cluster.gpus.types)) is not None:
            return mixed
        if len(jobs) > 2 or not all(rate > 0 for rate in self._rates(share, jobs)):
            return "these jobs were not measured together on this type of GPU"
        return None

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        """Return the measured speeds."""
        return tuple(Speed(rate_of(_SECOND_US / rate)) for rate in self._rates(share, jobs))

    def _rates(self, share: Share, jobs: Sequence[TraceJob]) -> tuple[float, ...]:
        gpu_type = self.cluster.gpus.types[share.gpus[0]]
        first, *others = (GavelJobType(job.model, job.gpus) for job in jobs)
        rates = self.throughputs.get(gpu_type, {}).get(first, {})
        if self._is_spread(share, gpu_type):  # what was not measured there is taken to run as on few servers
            rates = self.throughputs.get(gpu_type + _SPREAD, {}).get(first, rates)
        return rates.get(others[0] if others else None, (0.0,) * len(jobs))

    def _is_spread(self, share: Share, gpu_type: str) -> bool:
        """Return whether the GPUs are on more servers than need be."""
        widest = max(server.gpus for server in self.cluster.servers if server.gpu_type == gpu_type)
        return len({self._server_of[gpu] for gpu in share.gpus}) > -(-len(share.gpus) // widest)


def table(source: Path | None, cluster: Cluster) -> Table:
    """Read throughputs from a file."""
    if source is None or not exists(source):
        message = f"performance 'table' needs a file of throughputs, as in table:FILE, not {source}"
        raise missing_option("performance", message)
    found = read_throughputs(read_text(source), str(source))
    for server in cluster.servers:
        if server.gpu_type not in found:
            message = f"{source} has no throughputs of GPUs {server.gpu_type!r}; it has {', '.join(found)}"
            raise UsageError(message, code="unknown-name", path="performance")
    return Table(cluster, found)
