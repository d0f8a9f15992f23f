"""Instances from measured models: one job a model, on a cluster described by a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jigsaw_opt.errors import UsageError
from jigsaw_opt.instances.topologies import TOPOLOGIES
from jigsaw_opt.problem.cluster import Server
from jigsaw_opt.problem.depth import CHOICES, Depth, chosen_depth
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.job import Job
from jigsaw_opt.problem.model import Model
from jigsaw_opt.text import nearest

__all__ = ["MeasuredSetting", "instance_of"]


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The cluster and what every job does.

    Parameters
    ----------
    gpu_type, servers, gpus, gpu_memory
        Type of all GPUs; number of servers, GPUs in each, bytes of each GPU.
    topology, bandwidth, latency_us
        A name in `TOPOLOGIES`; bytes per second and latency of a server's link.
    fabric_bandwidth
        Bytes per second between GPUs of one server.
    workers, iterations, depth
        Workers, iterations and depth rule of every job; `depth` is a name in `CHOICES` of depth rules.
    objective
        ``period`` makes the horizon cyclic.
    """

    gpu_type: str
    servers: int
    gpus: int
    gpu_memory: int
    topology: str
    bandwidth: int
    latency_us: int
    fabric_bandwidth: int
    workers: int
    iterations: int
    depth: str
    objective: Objective


def instance_of(name: str, models: Mapping[str, Model], setting: MeasuredSetting) -> Instance:
    """Build an instance with one job for each of `models`, called after it.

    Parameters
    ----------
    name
        Name of the instance.
    models
        Models by name.
    setting
        The cluster, and what every job does.

    Raises
    ------
    UsageError
        Where the topology or the depth rule does not exist.
    """
    for value, known, what in ((setting.topology, TOPOLOGIES, "topology"), (setting.depth, CHOICES, "depth rule")):
        if value not in known:
            raise UsageError(f"no {what} {value!r}; {nearest(value, known)}", code="unknown-name")
    servers = [
        Server(f"s{k}", setting.gpu_type, setting.gpus, setting.gpu_memory, setting.fabric_bandwidth)
        for k in range(setting.servers)
    ]
    jobs = tuple(
        Job(key, key, setting.workers, setting.iterations, depth=_depth(setting, model))
        for key, model in models.items()
    )
    cluster = TOPOLOGIES[setting.topology](servers, setting.bandwidth, setting.latency_us)
    horizon: Horizon = "cyclic" if setting.objective == "period" else "finite"
    return Instance(name, cluster, models, jobs, horizon, setting.objective)


def _depth(setting: MeasuredSetting, model: Model) -> Depth:
    """Return the depth rule of a job; numbers that are too small are refused later, with the document."""
    return chosen_depth(setting.depth, max(1, setting.workers), model.depth, max(1, setting.iterations))
