"""A simulation in words, as on the command line or in a sweep, and what it takes to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path

from jigsaw_opt import instances
from jigsaw_opt.documents import load_instance
from jigsaw_opt.documents.readers.table import Accept
from jigsaw_opt.documents.readers.traces import READERS, read_trace
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.simulation.clusters import grid
from jigsaw_opt.simulation.contention import contention_of
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.mix import with_models
from jigsaw_opt.simulation.performance import Performance
from jigsaw_opt.simulation.performance.kinds import FROM_TRACE, performance_of
from jigsaw_opt.simulation.performance.profiled import Profiled
from jigsaw_opt.simulation.policy import Policy, Setting, choose

__all__ = ["Prepared", "Request", "prepare"]


@dataclass(frozen=True, slots=True)
class Request:
    """A simulation in words.

    Parameters
    ----------
    workload
        ``FORMAT:FILE``, or the name of a file in our own format.
    cluster
        As `grid` reads it, or what an instance is called.
    policy
        ``NAME`` or ``NAME:OPTION=VALUE...``.
    performance
        ``KIND`` or ``KIND:SOURCE``; empty for the models of the cluster's instance or, without one, ``seconds``.
    contention
        As `contention_of` reads it.
    round_s, restart_s
        Seconds between decisions, and of a start on other GPUs.
    draw_models
        Whether every job gets a model of the performance model, drawn with `seed`.
    seed
        Of the policy and the draw.
    """

    workload: str
    cluster: str
    policy: str
    performance: str = ""
    contention: str = "exclusive"
    round_s: float = 60.0
    restart_s: float = 30.0
    draw_models: bool = False
    seed: int = 0

    def about(self) -> dict[str, object]:
        """The words by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What it takes to run a request: everything was read and fits together."""

    setting: Setting
    policy: Policy
    options: Mapping[str, str]

    def start(self) -> Simulation:
        """A simulation at its beginning."""
        return Simulation(self.setting, self.policy, self.options)

    def inputs(self) -> str:
        """Text that tells equal simulations from others, the performance model's figures aside."""
        setting = self.setting
        parts = (setting.cluster, setting.workload, setting.performance.name, setting.contention is None)
        numbers = (setting.round_us, setting.restart_us, setting.seed)
        return repr((parts, numbers, self.policy.name, sorted(self.options.items())))


def _named(text: str) -> Instance:
    bundled = not Path(text).exists() and text in instances.names()
    return instances.load(text) if bundled else load_instance(text)


def prepare(request: Request, find_instance: Callable[[str], Instance] = _named) -> Prepared:
    """Read everything that a request names.

    Parameters
    ----------
    request
        The words.
    find_instance
        The instance that a name stands for; by default a bundled one, or that of a file.

    Raises
    ------
    UsageError
        It names what is not there.
    InvalidInputError
        With every problem of a trace, an instance or the figures of a performance model.
    """
    policy, options = choose(request.policy)
    round_us = _microseconds("round", request.round_s)
    restart_us = _microseconds("restart", request.restart_s)
    cluster, models = _cluster(request.cluster, find_instance)
    contention = contention_of(request.contention, cluster)
    workload, performance = _load(request, cluster, models)
    setting = Setting(cluster, workload, performance, contention, round_us, restart_us, request.seed)
    return Prepared(setting, policy, options)


def _microseconds(what: str, seconds: float) -> int:
    if not (isfinite(seconds) and seconds >= 0):
        raise UsageError(f"the {what} is a number of seconds of at least 0, not {seconds}")
    return round(seconds * 1_000_000)


def _cluster(text: str, find_instance: Callable[[str], Instance]) -> tuple[Cluster, Mapping[str, Model] | None]:
    """The cluster, and the models of the instance that it comes from."""
    made = None if Path(text).exists() else grid(text)
    if made is not None:
        return made, None
    instance = find_instance(text)
    return instance.cluster, instance.models


def _load(request: Request, cluster: Cluster, models: Mapping[str, Model] | None) -> tuple[Workload, Performance]:
    """The trace and the performance model; the jobs are checked against it as they are read, where that can be."""
    kind, _, source = request.performance.partition(":")
    if kind in FROM_TRACE:
        workload = _trace(request.workload, _accepting(cluster, None))
        return workload, performance_of(kind, Path(source) if source else None, cluster, workload.stages)
    performance: Performance
    if models is not None and request.performance in ("", Profiled.name):
        performance = Profiled(cluster, models)
    else:
        performance = performance_of(kind or "seconds", Path(source) if source else None, cluster)
    if not request.draw_models:
        return _trace(request.workload, _accepting(cluster, performance)), performance
    if not isinstance(performance, Profiled):
        raise UsageError("models are drawn from those of the performance model 'profiled', which is not in use")
    workload = _trace(request.workload, _accepting(cluster, None))
    return with_models(workload, performance, sorted(performance.models), request.seed), performance


def _trace(text: str, accept: Accept) -> Workload:
    name, _, file = text.partition(":")
    if name not in READERS or not file:
        name, file = "csv", text
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InvalidInputError([Problem(file, f"cannot be read: {reason}")]) from error
    return read_trace(name, data, file, accept)


def _accepting(cluster: Cluster, performance: Performance | None) -> Accept:
    """What is wrong with a job: more GPUs than there are, or nothing that the performance model knows."""
    count = cluster.gpu_count

    def problems(job: TraceJob) -> Sequence[str]:
        found = []
        if job.fewest > count:
            found.append(f"job {job.name!r} needs {job.fewest} GPUs and the cluster has {count}")
        reason = None if performance is None else performance.unknown(job)
        if reason is not None:
            found.append(reason)
        return found

    return problems
