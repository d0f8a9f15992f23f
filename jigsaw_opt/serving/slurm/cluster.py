"""The cluster that a scheduler sees of Slurm's nodes: servers, their GPUs by name, and which of them a job has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.gpu_types import matching_types
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.serving.slurm.reading import SlurmJob, SlurmNode
from jigsaw_opt.simulation.inputs.cluster_files import read_sinfo

UNLIMITED_US = 7 * 86_400_000_000
"""How long a job without a time limit is taken to last."""


class SlurmCluster:
    """Nodes with GPUs as servers; a node with several types of GPU is a server for each, as ``n0.a100``.

    `nodes`: all nodes, at least one with a GPU; those without are counted and left out.
    """

    def __init__(self, nodes: Sequence[SlurmNode]) -> None:
        names = {node.name for node in nodes}
        self.cluster: Cluster = read_sinfo("".join(f"{node.name}|{node.gres}\n" for node in nodes), "sinfo")
        self.node_of = {
            server.name: server.name if server.name in names else server.name.rpartition(".")[0]
            for server in self.cluster.servers
        }
        self._types = {server.name: server.gpu_type for server in self.cluster.servers}
        self._servers: dict[str, list[Server]] = {}
        for server in self.cluster.servers:
            self._servers.setdefault(self.node_of[server.name], []).append(server)

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes with GPUs, each with their number."""
        return {node: sum(server.gpus for server in servers) for node, servers in self._servers.items()}

    def servers_of(self, node: str) -> tuple[str, ...]:
        """Return the names of the servers of a node; none of a node without GPUs."""
        return tuple(server.name for server in self._servers.get(node, ()))

    def nodes_of(self, gpus: Iterable[str]) -> Counter[str]:
        """Return on how many GPUs of each node some GPUs are."""
        return Counter(self.node_of[gpu.rpartition("/")[0]] for gpu in gpus)

    def where(self, job: SlurmJob) -> Counter[str]:
        """Return how many GPUs of each node a job that runs has: as told, or else alike on all of them."""
        if job.nodes and all(node in job.indices for node in job.nodes):
            return Counter({node: len(job.indices[node]) for node in job.nodes})
        each, more = divmod(job.gpus, len(job.nodes) or 1)
        return Counter({node: each + (k < more) for k, node in enumerate(job.nodes)})

    def gpus_for(
        self, job: SlurmJob, where: Mapping[str, int], taken: Collection[str], before: Collection[str]
    ) -> tuple[str, ...] | None:
        """Return free GPUs of nodes for a job: those that Slurm tells, then those it had `before`; None if too few."""
        found: list[str] = []
        for node, count in where.items():
            told = job.indices.get(node, ()) if len(self._servers.get(node, ())) == 1 else ()
            known = {f"{node}/{index}" for index in told}
            free = [gpu for gpu in self._gpus_of(node, job.types) if gpu not in taken]
            free.sort(key=lambda gpu: (gpu not in known, gpu not in before))
            if len(free) < count:
                return None
            found += free[:count]
        return tuple(found)

    def fitted(
        self, job: SlurmJob, gpus: Sequence[str], taken: Collection[str], closed: Collection[str]
    ) -> tuple[str, ...] | None:
        """Return GPUs for a job as it asks for nodes: the planned ones, or others if they are too many or too few a
        node; None where there are none.

        `taken`: GPUs of others. `closed`: nodes that take no new job.
        """
        planned = self.nodes_of(gpus)
        each = job.per_node or -(-job.gpus // job.least_nodes)
        wide = -(-job.gpus // each) if job.per_node else job.least_nodes
        if self._fits(job, planned):
            return tuple(gpus)
        if each * wide != job.gpus:
            return None
        others = sorted(self._servers, key=lambda node: (-planned[node], node))
        able = (node for node in others if node not in closed and self._room(node, job, taken) >= each)
        chosen = [node for node, _ in zip(able, range(wide), strict=False)]
        return self.gpus_for(job, dict.fromkeys(chosen, each), taken, gpus) if len(chosen) == wide else None

    def _fits(self, job: SlurmJob, planned: Mapping[str, int]) -> bool:
        if job.per_node:
            return set(planned.values()) == {job.per_node}
        return job.least_nodes <= len(planned) <= (job.most_nodes or len(planned))

    def _room(self, node: str, job: SlurmJob, taken: Collection[str]) -> int:
        return sum(gpu not in taken for gpu in self._gpus_of(node, job.types))

    def _gpus_of(self, node: str, types: Sequence[str]) -> Iterator[str]:
        for server in self._servers.get(node, ()):
            if not types or server.gpu_type in self.types_of(types):
                yield from (f"{server.name}/{index}" for index in range(server.gpus))

    def types_of(self, asked: Sequence[str]) -> tuple[str, ...]:
        """Return the types of the cluster that a job names; as it has them where there are none."""
        known = self._types.values()
        return tuple(dict.fromkeys(name for word in asked for name in matching_types(word, known) or (word,)))

    def trace_job(self, job: SlurmJob) -> TraceJob:
        """Return a job as schedulers know it: it lasts as long as it may, as nobody knows how long it will."""
        made = TraceJob.lasting(job.name, job.submit_us, job.gpus, job.limit_us or UNLIMITED_US)
        return replace(
            made,
            time_limit_us=job.limit_us,
            queue=job.partition or None,
            gpu_types=self.types_of(job.types) or None,
            preemptible=job.requeue,
            array=job.array,
            array_limit=job.array_limit,
            **job.owner,
        )
