"""The operation graph: a job compiled into the blocks and transfers of one iteration.

Everything above this room reads operations and never models or segments. `compile_instance` makes them of
data-parallel jobs with partial backpropagation (specification: iteration).

What an operation waits for is not part of the graph; it follows from the kind of job. A transfer waits for its bucket
at each contributor, ``start(block) + ready_us``, where ``ready_us`` is the duration of the block at level ``bucket``,
and for the transfer before it. The blocks of an iteration wait for all operations of the one before. A bucket has
contributors only once levels are chosen, so each formulation and kernel states these rules for its own variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import gcd
from operator import mul

from jigsaw_opt.errors import TooLargeError, UsageError
from jigsaw_opt.problem.clock import checking_deadline
from jigsaw_opt.problem.cluster import Channel, Cluster, Routes
from jigsaw_opt.problem.compiled.task_graph import CompiledTaskGraph, compile_task_graph
from jigsaw_opt.problem.costs import EXACT_IN_64_BITS, ceil_fraction, most_bytes, transfer_us
from jigsaw_opt.problem.depth import DepthPlugin, FreeDepth, LevelRule, naming
from jigsaw_opt.problem.efficiency import Efficiency, ProgressLimit
from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.network.best_channel import BestChannel
from jigsaw_opt.problem.rules.keyed import altered

MOST_OPERATIONS = 20_000_000
"""Blocks and transfers that a plan is written for."""
_HUGE_SERVER = 1 << 10
"""GPUs of a server beyond so many are left out where there are not as many workers."""


@dataclass(frozen=True, slots=True)
class BlockOperation:
    """A block of one iteration.

    `slot`: the worker (0-based) that runs it. All blocks of a slot sit on one GPU. `duration_us`: duration by GPU type
    and level (index ``level - 1``), never falling with the level.
    """

    slot: int
    duration_us: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TransferOperation:
    """A transfer of one iteration, received by all slots of the job.

    `bucket`: its 1-based number; slots whose level is at least `bucket` contribute.
    """

    bucket: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class OperationGraph:
    """One compiled job.

    `slots`: number of workers, on different GPUs. `gpu_types`: GPU types that may run it. `state_bytes`: memory that
    each slot holds all the time. `activation_bytes`: memory of activations by largest level (index ``level - 1``);
    never falls. `power_w`: watts that a GPU draws while it runs a block, by GPU type; 0 on types that are not named.
    """

    name: str
    release_us: int
    weight: int
    iterations: int
    slots: int
    levels: int
    rule: LevelRule
    blocks: tuple[BlockOperation, ...]
    transfers: tuple[TransferOperation, ...]
    gpu_types: tuple[str, ...]
    state_bytes: int
    activation_bytes: tuple[int, ...]
    deadline_us: int | None = None
    route_policy: str | None = None
    power_w: Mapping[str, int] = field(default_factory=dict)

    def transfer_us(self, bucket: int, contributors: int, channel: Channel) -> int:
        """Return the duration of the transfer of a bucket, in microseconds (specification: transfer)."""
        payload = self.transfers[bucket - 1].payload_bytes
        return transfer_us(payload, contributors, self.slots, channel.rate, channel.latency_us)


@dataclass(frozen=True)
class Operations:
    """A compiled instance: its cluster, and one graph a job, in the instance's order among those of a kind.

    `jobs` are the data-parallel ones, `task_graphs` those with a task graph. The cluster is the instance's without the
    GPUs of a huge server that would stay idle in any case.
    """

    instance: Instance
    cluster: Cluster
    jobs: tuple[OperationGraph, ...]
    horizon: Horizon
    objective: Objective
    task_graphs: tuple[CompiledTaskGraph, ...] = ()

    @cached_property
    def routes(self) -> Routes:
        """Routes over the cluster's links."""
        return Routes(self.cluster)

    def with_routes(self, routes: Routes) -> Operations:
        """Return the same with routes that are known: those of its cluster are not worked out again."""
        found = replace(self)
        found.__dict__["routes"] = routes
        return found

    @cached_property
    def _best_channels(self) -> dict[str | None, BestChannel]:
        """Best rates and latencies over the links that routes may use, by policy."""
        return {}

    def crossing(self, job: OperationGraph, gpus: Mapping[int, int]) -> Channel | None:
        """Return the rate and latency that no placement of a job on two or more servers beats; None without one.

        Parameters
        ----------
        job
            One of the jobs.
        gpus
            Number of GPUs that it may use, by server.
        """
        if job.route_policy not in self._best_channels:
            links = self.routes.under(job.route_policy).links
            self._best_channels[job.route_policy] = BestChannel(altered(self.cluster, links=links))
        return self._best_channels[job.route_policy].crossing(gpus, job.slots)

    @property
    def needs_network(self) -> bool:
        """Whether only activity networks state it: for task graphs, cumulative capacities, or what jobs hold.

        Methods for data-parallel jobs alone know one operation at a time on each GPU and link, and memory.
        """
        return bool(self.task_graphs or self.cluster.capacities or self.instance.scarce_capacities)

    @property
    def is_mixed(self) -> bool:
        """Whether there are jobs of both kinds."""
        return bool(self.jobs and self.task_graphs)

    @property
    def kinds(self) -> tuple[Operations, ...]:
        """The data-parallel jobs alone and the task-graph ones alone, as far as there are any, on the same cluster."""
        if not self.is_mixed:
            return (self,)
        return tuple(part.with_routes(self.routes) for part in (replace(self, task_graphs=()), replace(self, jobs=())))

    @property
    def names(self) -> list[str]:
        """Name of each job, data-parallel ones before task-graph ones."""
        return [*(job.name for job in self.jobs), *(graph.job.name for graph in self.task_graphs)]

    @property
    def weights(self) -> list[int]:
        """Weight of each job, data-parallel ones before task-graph ones."""
        return [*(job.weight for job in self.jobs), *(graph.job.weight for graph in self.task_graphs)]

    @property
    def deadlines(self) -> list[int | None]:
        """Deadline of each job in microseconds, data-parallel ones before task-graph ones; None for those without."""
        return [*(job.deadline_us for job in self.jobs), *(graph.job.deadline_us for graph in self.task_graphs)]

    @cached_property
    def objective_limit(self) -> int | None:
        """No plan with a larger objective keeps all guarantees; None where they leave it open."""
        if self.horizon == "cyclic":
            jobs = self.instance.jobs
            return min((job.pace_us * job.iterations for job in jobs if job.pace_us is not None), default=None)
        deadlines = [deadline for deadline in self.deadlines if deadline is not None]
        # A job without a deadline may end at any time, which leaves the objective open.
        if len(deadlines) < len(self.deadlines):
            return None
        return max(deadlines) if self.objective == "makespan" else sum(map(mul, self.weights, deadlines))

    @cached_property
    def has_scarce_holdings(self) -> bool:
        """Whether jobs may have to follow one another for what they hold (specification: memory, licences).

        So it is on the finite horizon where all jobs that may be on a GPU exceed its memory together, or together hold
        more of something else than there is. Elsewhere only
        what a job needs alone decides where it may be. On the cyclic horizon all jobs are always present.
        """
        if self.horizon == "cyclic" or len(self.jobs) + len(self.task_graphs) < 2:
            return False
        return bool(self.instance.scarce_capacities) or any(
            sum(self.most_bytes_on(gpu_type)) > memory
            for gpu_type, memory in {(server.gpu_type, server.gpu_memory) for server in self.cluster.servers}
        )

    def most_bytes_on(self, gpu_type: str) -> Iterator[int]:
        """Yield the most bytes that all data-parallel jobs take of a GPU of a type, then those of each other job."""
        yield most_bytes(job for job in self.jobs if gpu_type in job.gpu_types)
        for graph in self.task_graphs:
            held = Counter[int]()
            for hold in graph.holds:
                # Iterations may overlap, so that all of them may hold it at once.
                held[hold.slot] += hold.bytes * graph.job.iterations
            slots = zip(graph.shape.slots, graph.gpu_types, strict=True)
            yield max((slot.memory + held[k] for k, (slot, own) in enumerate(slots) if gpu_type in own), default=0)

    @property
    def blocks(self) -> int:
        """Number of blocks of all jobs and iterations."""
        in_graphs = sum(graph.job.iterations * graph.blocks for graph in self.task_graphs)
        return in_graphs + sum(job.iterations * len(job.blocks) for job in self.jobs)

    @property
    def transfers(self) -> int:
        """Number of transfers of all jobs and iterations."""
        in_graphs = sum(graph.job.iterations * (graph.size - graph.blocks) for graph in self.task_graphs)
        return in_graphs + sum(job.iterations * len(job.transfers) for job in self.jobs)


def compile_instance(instance: Instance) -> Operations:
    """Compile every job of an instance, of either kind.

    Parameters
    ----------
    instance
        The instance.

    Raises
    ------
    TooLargeError
        One iteration of all jobs has more than `MOST_OPERATIONS` blocks.
    OutOfTimeError
        The time of the solve is over.
    UsageError
        A depth rule of one's own gives limits that no levels keep.
    """
    instance.require_jobs()
    workers = instance.workers
    if workers > MOST_OPERATIONS:
        raise TooLargeError(f"the jobs have {workers:,} workers; a plan is written for {MOST_OPERATIONS:,} at most")
    cutters = {name: _ModelCompiler(model) for name, model in instance.models.items()}
    jobs = tuple(cutters[job.model].compile(job) for job in checking_deadline(instance.data_parallel_jobs))
    graphs = tuple(compile_task_graph(job) for job in checking_deadline(instance.task_graph_jobs))
    return Operations(instance, _usable(instance, workers), jobs, instance.horizon, instance.objective, graphs)


def _usable(instance: Instance, workers: int) -> Cluster:
    """Return the cluster without GPUs that no plan needs: those of a server are alike, with one worker each."""
    most = max(_HUGE_SERVER, workers)
    cluster = instance.cluster
    if all(server.gpus <= most for server in cluster.servers):
        return cluster
    return altered(cluster, servers=tuple(altered(server, gpus=min(server.gpus, most)) for server in cluster.servers))


class _ModelCompiler:
    """The data that all jobs of one model share, worked out once."""

    def __init__(self, model: Model) -> None:
        self.levels = model.depth
        self.gpu_types = model.gpu_types
        self._pass_us = {t: model.block_us(t) for t in self.gpu_types}
        self._bucket_bytes = model.bucket_bytes()
        self.state_bytes = model.state_bytes
        self.activation_bytes = model.activation_bytes()
        self.power_w = model.power_w or {}
        self.efficiency = model.efficiency
        self._blocks: dict[tuple[int, JobExchange | None], tuple[BlockOperation, ...]] = {}
        self._transfers: dict[JobExchange | None, tuple[TransferOperation, ...]] = {}

    def compile(self, job: Job) -> OperationGraph:
        key = job.workers, job.exchange
        if key not in self._blocks:
            duration_us = {t: job.block_us(pass_us) for t, pass_us in self._pass_us.items()}
            self._blocks[key] = tuple(BlockOperation(slot, duration_us) for slot in range(job.workers))
        if job.exchange not in self._transfers:
            payloads = enumerate(job.sent_bytes(self._bucket_bytes), 1)
            self._transfers[job.exchange] = tuple(TransferOperation(b, size) for b, size in payloads)
        return OperationGraph(
            name=job.name,
            release_us=job.release_us,
            weight=job.weight,
            iterations=job.iterations,
            slots=job.workers,
            levels=self.levels,
            rule=_rule(job, self.levels, self.efficiency),
            blocks=self._blocks[key],
            transfers=self._transfers[job.exchange] if job.workers >= 2 else (),
            gpu_types=self.gpu_types,
            state_bytes=self.state_bytes,
            activation_bytes=self.activation_bytes,
            deadline_us=job.deadline_us,
            route_policy=job.route_policy,
            power_w=self.power_w,
        )


def _rule(job: Job, deepest: int, efficiency: Efficiency | None) -> LevelRule:
    with naming(job.depth):
        rule = job.depth.limits(job.workers, deepest, job.iterations)
    if isinstance(job.depth, DepthPlugin) and not rule.fits(job.workers, deepest):
        asked = f"{job.workers} workers and {deepest} levels: {rule}"
        told = f"depth rule {job.depth.rule!r} gives no limits that levels can keep, for {asked}"
        raise UsageError(told, code="failed", path="depth")
    if isinstance(job.depth, FreeDepth) and job.depth.min_progress is not None and efficiency is not None:
        return _with_progress(rule, job, Fraction(job.depth.min_progress), efficiency)
    return rule


def _with_progress(rule: LevelRule, job: Job, share: Fraction, efficiency: Efficiency) -> LevelRule:
    """Return a rule that limits progress as well, with the least levels and contributors that follow from it."""
    unit = gcd(*efficiency.weight)
    efficiency = replace(efficiency, weight=tuple(weight // unit for weight in efficiency.weight))
    most, deepest = efficiency.most, len(efficiency.weight)
    # Models of all iterations have limits of their own; those of a mean one have not.
    if most * deepest > EXACT_IN_64_BITS:
        told = f"the progress of job {job.name!r} is {most:,} millionths an iteration; {EXACT_IN_64_BITS // deepest:,}"
        raise TooLargeError(f"{told} are taken at most, so choose smaller weights of the buckets")
    limit = ProgressLimit(efficiency, job.workers, ceil_fraction(share * job.iterations * most))
    fewest = max(rule.min_contributors, limit.fewest(job.iterations))
    total = ceil_fraction(job.iterations * limit.least_levels(job.iterations, fewest))
    return replace(rule, min_contributors=fewest, min_total=max(rule.min_total, total), progress=limit)


def is_long(instance: Instance, most: int = MOST_OPERATIONS) -> bool:
    """Return whether a plan that lists all iterations would be too long; False on the cyclic horizon."""
    if instance.horizon != "finite":
        return False
    operations = sum(job.iterations * len(job.shape.operations) for job in instance.task_graph_jobs)
    for job in instance.data_parallel_jobs:
        operations += job.iterations * (job.workers + (instance.models[job.model].depth if job.workers > 1 else 0))
    return operations > most
