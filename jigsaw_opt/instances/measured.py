"""Instances from measured models: one job a model, on a cluster described by a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.topologies import TOPOLOGIES, require_size
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.depth import CHOICES, Depth, chosen_depth
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.task_graph import TaskGraph, TaskGraphJob
from jigsaw_opt.text import nearest


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The cluster and what every job does.

    `gpu_type, servers, gpus, gpu_memory`: type of all GPUs; number of servers, GPUs in each, bytes of each GPU.
    `topology, bandwidth, latency_us`: A name in `TOPOLOGIES`; bytes per second and latency of a server's link.
    `fabric_bandwidth`: bytes per second between GPUs of one server. `workers, iterations, depth`: workers, iterations
    and depth rule of every job; `depth` is a name in `CHOICES` of depth rules.
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
    if setting.depth not in CHOICES:
        raise UsageError(
            f"no depth rule {setting.depth!r}; {nearest(setting.depth, CHOICES)}", code="unknown-name", path="depth"
        )
    cluster = _cluster(setting, len(models))
    jobs = tuple(
        Job(key, key, setting.workers, setting.iterations, depth=_depth(setting, model))
        for key, model in models.items()
    )
    return Instance(name, cluster, models, jobs, _horizon(setting), setting.objective)


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


def _depth(setting: MeasuredSetting, model: Model) -> Depth:
    """Return the depth rule of a job; numbers that are too small are refused later, with the document."""
    return chosen_depth(setting.depth, max(1, setting.workers), model.depth, max(1, setting.iterations))
