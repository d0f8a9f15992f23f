"""The cluster and the jobs in flat numbers: what placement and timing look up again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.clock import check_deadline, checking_deadline
from jigsaw_opt.problem.cluster import Channel, Server
from jigsaw_opt.problem.compiled.operations import OperationGraph, Operations
from jigsaw_opt.problem.compiled.timetable import Gpu
from jigsaw_opt.problem.costs import ceil_div
from jigsaw_opt.solvers.placement.levels import SHAPES, Levels, multisets


class Layout:
    """GPUs numbered over all servers.

    `in_time`: whether jobs may follow one another for their memory, so that each has all of a GPU's. `memory, load`: by
    GPU, its bytes, and the microseconds for which it is taken. Where other jobs are placed already, the caller takes
    off from the one and adds to the other what is theirs. `held`: GPUs by slot of the jobs that have their place
    already, by number of the job.
    """

    def __init__(
        self, operations: Operations, in_time: bool = False, held: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        self.routes, self.in_time, self.held = operations.routes, in_time, held or {}
        self.servers = servers = operations.cluster.servers
        self.links = len(operations.cluster.links)
        self.gpus: list[Gpu] = [*operations.cluster.gpus.places]
        self.server_of: list[int] = [*operations.cluster.gpus.server_of]
        self.type_of = [servers[s].gpu_type for s in self.server_of]
        self.memory = [servers[s].gpu_memory for s in self.server_of]
        self.load = [0] * len(self.gpus)
        self.on_server: list[list[int]] = [[*gpus] for gpus in operations.cluster.gpus.of_server]
        self._near: dict[tuple[str | None, int], list[list[int]]] = {}

    def channel(self, job: OperationGraph, gpus: Iterable[int]) -> Channel | None:
        """Return the channel of a job on GPUs, or None where no route joins some two of them."""
        return self.routes.under(job.route_policy).channel(Counter(self.server_of[gpu] for gpu in gpus))

    def near(self, server: int, policy: str | None = None) -> list[list[int]]:
        """Return the servers that are joined to a server, grouped by the number of links between, nearest first.

        `policy`: route policy; None for any route.
        """
        key = policy, server
        if key not in self._near:
            rings: dict[int, list[int]] = {0: [server]}
            for other, length in self.routes.under(policy).lengths(server).items():
                rings.setdefault(length, []).append(other)
            self._near[key] = [rings[length] for length in sorted(rings)]
        return self._near[key]

    def around(
        self,
        anchor: int,
        job: OperationGraph,
        ranked: Callable[[Sequence[int]], Iterable[int]],
        inside: Callable[[int], Iterable[int]],
        choose: Callable[[Sequence[int]], list[int] | None],
    ) -> list[int] | None:
        """Return GPUs chosen for a job of those of a server and, where they do not suffice, of joined ones near it.

        `ranked`: puts servers that are as near in order, and may leave some out. `inside`: GPUs of a server in order.
        `choose`: takes GPUs of those gathered so far, or None.
        """
        routes, servers, gathered = self.routes.under(job.route_policy), list[int](), list[int]()
        for ring in self.near(anchor, job.route_policy):
            for server in ranked(ring):
                if routes.joins(server, servers):
                    servers.append(server)
                    gathered += inside(server)
                    gpus = choose(gathered) if len(gathered) >= job.slots else None
                    if gpus is not None:
                        return gpus
        return None

    def mutual(self, job: OperationGraph, gpus: Iterable[int]) -> list[int]:
        """Build a clique greedily: keep a GPU if its server is joined to the servers of all GPUs kept so far."""
        found = list(gpus)
        kept = set(self.routes.under(job.route_policy).mutual(dict.fromkeys(self.server_of[gpu] for gpu in found)))
        return [gpu for gpu in found if self.server_of[gpu] in kept]

    def cliques(self, job: OperationGraph, gpus: Sequence[int]) -> Iterator[list[int]]:
        """Yield sets of GPUs on servers any two of which are joined for a job; each GPU is in one of them."""
        routes, left = self.routes.under(job.route_policy), list(gpus)
        if routes.policy is None:
            parts: dict[int, list[int]] = {}
            for gpu in gpus:
                parts.setdefault(routes.component[self.server_of[gpu]], []).append(gpu)
            yield from parts.values()
            return
        while left:
            first = self.server_of[left[0]]
            clique = self.mutual(job, sorted(gpus, key=lambda gpu: self.server_of[gpu] != first))
            inside = set(clique)
            yield [gpu for gpu in gpus if gpu in inside]
            left = [gpu for gpu in left if gpu not in inside]


def kind_of(server: Server) -> tuple[str, int, int, int]:
    """Return a key that servers of one kind share."""
    return server.gpu_type, server.gpu_memory, server.fabric_bandwidth, server.fabric_latency_us


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Demand of jobs of one model, width, depth rule, policy and number of iterations; such jobs share one object.

    `need`: levels that memory has to admit, descending. `slot_us`: mean GPU time of a slot over the horizon by GPU
    type, in microseconds.
    """

    job: OperationGraph
    rows: tuple[Levels, ...]
    need: Levels
    slot_us: dict[str, int]


def demands(operations: Operations) -> list[Demand] | None:
    """Return the demand of every job, or None where a depth rule allows no levels at all."""
    shared: dict[tuple[object, ...], Demand] = {}
    found = []
    for job in checking_deadline(operations.jobs):
        # Compiling shares the blocks of jobs of one model and width, so their identity tells these apart.
        key = (id(job.blocks), job.state_bytes, job.activation_bytes, job.iterations, job.rule, job.route_policy)
        if key not in shared:
            demand = _demand(job)
            if demand is None:
                return None
            shared[key] = demand
        found.append(shared[key])
    return found


def shapes(demand: Demand) -> tuple[Demand, ...]:
    """Return the same demand with its levels in every profile that differs; itself first."""
    found = {demand.rows: demand}
    for shape in SHAPES:
        rows = multisets(demand.job, shape)
        if rows is not None and rows not in found:
            found[rows] = _asking(demand.job, rows)
    return tuple(found.values())


def exchange_us(job: OperationGraph, levels: Sequence[int], channel: Channel) -> tuple[int, ...]:
    """Return the durations of the transfers of an iteration, by bucket, in microseconds."""
    counts = [0] * (job.levels + 1)
    for level in levels:
        counts[level] += 1
    for level in range(job.levels - 1, 0, -1):
        counts[level] += counts[level + 1]
    return tuple(job.transfer_us(t.bucket, counts[t.bucket], channel) for t in job.transfers)


def iteration_us(tables: Sequence[Sequence[int]], levels: Sequence[int], exchange: Sequence[int]) -> int:
    """Return the time from the start of the blocks to the barrier when all start at once, without contention."""
    fastest_first = sorted(tables, key=lambda table: table[-1])
    end = 0
    for bucket, duration in enumerate(exchange):
        ready = max(t[bucket] for t, level in zip(fastest_first, levels, strict=True) if level > bucket)
        end = max(end, ready) + duration
    return max(end, *(t[level - 1] for t, level in zip(fastest_first, levels, strict=True)))


def mean_us(
    rows: Sequence[Levels], exchange: Sequence[tuple[int, ...]], length: Callable[[Levels, tuple[int, ...]], int]
) -> int:
    """Return the mean length of iterations, rounded up, in microseconds.

    `rows, exchange`: levels and durations of the transfers by iteration. `length`: function from such levels and
    durations of an iteration to its length in microseconds.
    """
    kinds = Counter(zip(rows, exchange, strict=True))
    return ceil_div(sum(count * length(*kind) for kind, count in kinds.items()), len(rows))


def _demand(job: OperationGraph) -> Demand | None:
    rows = multisets(job)
    return None if rows is None else _asking(job, rows)


def _asking(job: OperationGraph, rows: tuple[Levels, ...]) -> Demand:
    check_deadline()
    need = (job.levels,) * job.slots if job.rule.balance is not None else max(rows, key=sum)
    times = Counter(level for row in rows for level in row)
    tables = job.blocks[0].duration_us
    slot_us = {t: sum(n * tables[t][level - 1] for level, n in times.items()) // job.slots for t in job.gpu_types}
    return Demand(job, rows, need, slot_us)
