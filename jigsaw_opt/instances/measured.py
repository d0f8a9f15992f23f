"""Instances from measured models: one job a model, on a cluster described by a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, gcd

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.topologies import TOPOLOGIES, require_size
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.depth import CHOICES, FreeDepth, FullDepth, chosen_depth
from jigsaw_opt.problem.efficiency import payoffs
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob
from jigsaw_opt.text import nearest

DEPTHS = (*CHOICES, "goodput")
"""Choices of the depth of all jobs of an instance (`with_depth`)."""


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The cluster and what every job does.

    `gpu_type, servers, gpus, gpu_memory`: type of all GPUs; number of servers, GPUs in each, bytes of each GPU.
    `topology, bandwidth, latency_us`: A name in `TOPOLOGIES`; bytes per second and latency of a server's link.
    `fabric_bandwidth`: bytes per second between GPUs of one server. `workers, iterations, depth`: workers, iterations
    and depth rule of every job; `depth` is a name in `DEPTHS`.
    """

    gpu_type: str
    servers: int = 2
    gpus: int = 4
    gpu_memory: int = 32 * 10**9
    topology: str = "star"
    bandwidth: int = 1_250_000_000
    latency_us: int = 0
    fabric_bandwidth: int = 12 * 10**9
    workers: int = 4
    iterations: int = 3
    depth: str = "full"
    objective: Objective = "makespan"


def instance_of(name: str, models: Mapping[str, Model], setting: MeasuredSetting) -> Instance:
    """Build an instance with one job for each of `models`, called after it."""
    if setting.depth not in DEPTHS:
        raise UsageError(
            f"no depth rule {setting.depth!r}; {nearest(setting.depth, DEPTHS)}", code="unknown-name", path="depth"
        )
    cluster = _cluster(setting, len(models))
    jobs = tuple(Job(key, key, setting.workers, setting.iterations) for key in models)
    return with_depth(Instance(name, cluster, models, jobs, _horizon(setting), setting.objective), setting.depth)


def with_depth(instance: Instance, choice: str) -> Instance:
    """Return an instance with another depth rule of all data-parallel jobs, by a name in `DEPTHS`."""
    return replace(instance, jobs=tuple(_with_depth(instance, job, choice) for job in instance.data_parallel))


def _with_depth(instance: Instance, job: Job, choice: str) -> Job:
    """Return a job with another depth rule.

    Under ``goodput`` it is the free rule with a limit of progress, and as many iterations as the levels that take the
    least GPU-time for it (`payoffs`) need for that of full depth, on the fastest type of GPU. Where no efficiency is
    known, or these iterations take no less GPU-time, it gets full depth.
    """
    model, (workers, iterations) = instance.models[job.model], (max(1, job.workers), max(1, job.iterations))
    if choice != "goodput":
        # Numbers that are too small are refused later, with the document.
        return replace(job, depth=chosen_depth(choice, workers, model.depth, iterations))
    types = {server.gpu_type for server in instance.cluster.servers}.intersection(model.gpu_types)
    if model.efficiency is None or not types:
        return replace(job, depth=FullDepth())
    block_us = min((model.block_us(kind) for kind in types), key=lambda own: own[-1])
    # Levels of most progress for their time may lose by rounding where there are few iterations.
    found = payoffs(model.efficiency, block_us, workers)
    ways = [(ceil(iterations / way.progress), way) for way in found if not way.frozen]
    needed, best = min(ways, key=lambda way: way[0] * way[1].time)
    if best.time == 1:
        return replace(job, depth=FullDepth())
    part = gcd(iterations, needed)
    return replace(job, iterations=needed, depth=FreeDepth(min_progress=f"{iterations // part}/{needed // part}"))


def instance_of_task_graph(name: str, graph: TaskGraph, setting: MeasuredSetting) -> Instance:
    """Build an instance with one job that has a task graph, called as the instance; it has no depth and no workers."""
    job = TaskGraphJob(name, graph, setting.iterations)
    return Instance(name, _cluster(setting), {}, (job,), _horizon(setting), setting.objective)


def _cluster(setting: MeasuredSetting, jobs: int = 0) -> Cluster:
    require_size(setting.servers * setting.gpus, setting.workers * jobs)
    if setting.topology not in TOPOLOGIES:
        raise UsageError(
            f"no topology {setting.topology!r}; {nearest(setting.topology, TOPOLOGIES)}",
            code="unknown-name",
            path="topology",
        )
    servers = [
        Server(f"s{k}", setting.gpu_type, setting.gpus, setting.gpu_memory, setting.fabric_bandwidth)
        for k in range(setting.servers)
    ]
    return TOPOLOGIES[setting.topology](servers, setting.bandwidth, setting.latency_us)


def _horizon(setting: MeasuredSetting) -> Horizon:
    return "cyclic" if setting.objective == "period" else "finite"
