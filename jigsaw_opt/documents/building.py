"""Instances built in Python, validated by the decoder that reads documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from itertools import starmap
from numbers import Integral
from typing import Any

from jigsaw_opt.documents.encoding import encode_depth, encode_part
from jigsaw_opt.documents.instance_decoding import VALID, as_valid, decode_instance_tree
from jigsaw_opt.errors import require_a
from jigsaw_opt.problem import Cluster, Depth, FullDepth, Instance, Job, Model, Segment, Shape
from jigsaw_opt.problem.depth import DepthPlugin, plugins
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.route_policy import RoutePolicy
from jigsaw_opt.problem.rules.report import Place, Report
from jigsaw_opt.problem.shape import ShapedJob

__all__ = ["InstanceBuilder", "validate"]

Json = dict[str, Any]
_FORMAT = "jigsaw-instance/1"


class InstanceBuilder:
    """An instance under construction: add servers, models and jobs in any order, then `build`.

    Nothing is checked before `build`, which reports every problem at once with its path in the document. Integers may
    be of any type that is registered as one, as those of NumPy are.

    Parameters
    ----------
    name
        Name of the instance.
    horizon
        ``finite`` or ``cyclic``.
    objective
        ``makespan``, ``weighted_completion`` or ``period``; None for ``makespan`` on the finite horizon and ``period``
        on the cyclic one.
    """

    def __init__(self, name: str, *, horizon: Horizon = "finite", objective: Objective | None = None) -> None:
        self._name, self._horizon = name, horizon
        self._objective = objective or ("period" if horizon == "cyclic" else "makespan")
        self._servers: list[object] = []
        self._switches: list[object] = []
        self._links: list[object] = []
        self._route_policies: dict[str, object] | None = None
        self._power_caps: list[object] | None = None
        self._models: list[tuple[str, object]] = []
        self._jobs: list[object] = []

    def add_server(
        self,
        name: str,
        *,
        gpu_type: str,
        gpus: int,
        gpu_memory: int,
        fabric_bandwidth: int,
        fabric_latency_us: int = 0,
    ) -> None:
        """Add a server.

        Parameters
        ----------
        name, gpu_type
            Its name and the type of its GPUs.
        gpus
            Number of GPUs, at least 1.
        gpu_memory
            Bytes of memory of each GPU.
        fabric_bandwidth, fabric_latency_us
            Bytes per second and latency in microseconds between two of its GPUs.
        """
        self._servers.append(
            {
                "name": name,
                "gpu_type": gpu_type,
                "gpus": gpus,
                "gpu_memory": gpu_memory,
                "fabric_bandwidth": fabric_bandwidth,
                "fabric_latency_us": fabric_latency_us,
            }
        )

    def add_switch(self, name: str) -> None:
        """Add a switch."""
        self._switches.append(name)

    def add_link(self, name: str, ends: tuple[str, str], *, bandwidth: int, latency_us: int = 0) -> None:
        """Add a link between two servers or switches, with its bytes per second and its latency in microseconds."""
        self._links.append({"name": name, "ends": ends, "bandwidth": bandwidth, "latency_us": latency_us})

    def add_route_policy(self, name: str, policy: RoutePolicy) -> None:
        """Add a policy that the routes of jobs which name it must keep."""
        self._route_policies = {**(self._route_policies or {}), name: policy}

    def add_power_cap(self, name: str, servers: Sequence[str], *, watts: int) -> None:
        """Add a limit on the watts that blocks draw at once on the GPUs of some servers, given by their names."""
        self._power_caps = [*(self._power_caps or ()), {"name": name, "servers": servers, "watts": watts}]

    def add_cluster(self, cluster: Cluster) -> None:
        """Add all servers, switches, links, route policies and power caps of a cluster."""
        self._servers.extend(cluster.servers)
        self._switches.extend(cluster.switches)
        self._links.extend(cluster.links)
        if cluster.route_policies is not None:
            self._route_policies = {**(self._route_policies or {}), **cluster.route_policies}
        if cluster.power_caps is not None:
            self._power_caps = [*(self._power_caps or ()), *cluster.power_caps]

    def add_model(
        self,
        name: str,
        segments: Iterable[Segment] | Model | Mapping[str, Any],
        *,
        levels: Sequence[int] | None = None,
        state_factor: int | None = None,
        executor: Mapping[str, Any] | None = None,
        power_w: Mapping[str, int] | None = None,
    ) -> None:
        """Add a model.

        Parameters
        ----------
        name
            Its name, which jobs refer to.
        segments
            Its segments, from the input to the output; or a whole model: a `Model`, what ``jigsaw profile -o`` wrote,
            or what ``jigsaw profile --json`` printed, both as read from JSON. What is given besides takes the place of
            its own.
        levels
            How many segments each level backpropagates, strictly increasing up to all; None for those of the model,
            or 1, 2, and so on.
        state_factor
            Bytes held for weights, gradients and optimiser state per byte of parameters; None for that of the model,
            or 4.
        executor
            How the executor builds it; None for what the model says, or where it is not to be run.
        power_w
            Watts that a GPU draws while it runs a block, by GPU type; None for those of the model, or 0.
        """
        given = {"levels": levels, "state_factor": state_factor, "executor": executor, "power_w": power_w}
        self._models.append((name, {**_whole(segments), **{key: it for key, it in given.items() if it is not None}}))

    def add_models(self, models: Mapping[str, Model]) -> None:
        """Add models by name, such as those of another instance."""
        self._models.extend(models.items())

    def add_job(
        self,
        name: str,
        *,
        model: str,
        workers: int,
        iterations: int,
        release_us: int = 0,
        weight: int = 1,
        depth: Depth | None = None,
        deadline_us: int | None = None,
        pace_us: int | None = None,
        route_policy: str | None = None,
    ) -> None:
        """Add a job.

        Parameters
        ----------
        name, model
            Its name and that of its model, which may be added later.
        workers, iterations
            Number of workers and of iterations, each at least 1.
        release_us
            Its first blocks start no earlier, in microseconds.
        weight
            Its weight in ``weighted_completion``.
        depth
            Its depth rule; None for full depth.
        deadline_us
            It ends no later, in microseconds; None for no deadline.
        pace_us
            On the cyclic horizon, microseconds per iteration on average, at most; None for no such promise.
        route_policy
            Which route policy its transfers keep; None for none.
        """
        self._jobs.append(
            {
                "name": name,
                "model": model,
                "workers": workers,
                "iterations": iterations,
                "release_us": release_us,
                "weight": weight,
                "depth": FullDepth() if depth is None else depth,
                **_given(deadline_us=deadline_us, pace_us=pace_us, route_policy=route_policy),
            }
        )

    def add_shaped_job(
        self,
        name: str,
        shape: Shape,
        *,
        iterations: int,
        release_us: int = 0,
        weight: int = 1,
        deadline_us: int | None = None,
        pace_us: int | None = None,
        route_policy: str | None = None,
    ) -> None:
        """Add a job that states its own operations.

        Parameters
        ----------
        name, shape
            Its name, and its slots and operations.
        iterations
            Number of iterations, at least 1.
        release_us
            None of its operations starts earlier, in microseconds.
        weight
            Its weight in ``weighted_completion``.
        deadline_us, pace_us, route_policy
            As of `add_job`.
        """
        self._jobs.append(
            {
                "name": name,
                "shape": shape,
                "iterations": iterations,
                "release_us": release_us,
                "weight": weight,
                **_given(deadline_us=deadline_us, pace_us=pace_us, route_policy=route_policy),
            }
        )

    def build(self) -> Instance:
        """The instance of all that was added so far.

        Raises
        ------
        InvalidInputError
            It breaks a rule of the document; with every problem and its path.
        """
        tree = {
            "format": _FORMAT,
            "name": self._name,
            "cluster": {
                "servers": self._servers,
                "switches": self._switches,
                "links": self._links,
                **({} if self._route_policies is None else {"route_policies": self._route_policies}),
                **({} if self._power_caps is None else {"power_caps": self._power_caps}),
            },
            "models": _Pairs(self._models),
            "jobs": self._jobs,
            "horizon": self._horizon,
            "objective": self._objective,
        }
        return decode_instance_tree(lambda report: _plain(tree, "$", report))


def _whole(model: Iterable[Segment] | Model | Mapping[str, Any]) -> Mapping[str, Any]:
    """A model as the document has it, from whatever it is made of."""
    if isinstance(model, Model):
        return dict(encode_part(model))
    if not isinstance(model, Mapping):
        return {"segments": list(model)}
    report = model.get("model")  # what `jigsaw profile --json` prints has the model beside what was measured
    return report if "segments" not in model and isinstance(report, Mapping) else model


def _given(**values: int | str | None) -> Json:
    """Those keys that have a value."""
    return {key: value for key, value in values.items() if value is not None}


def validate(instance: Instance) -> Instance:
    """The instance as the decoder of documents reads it, such as one that was made of its parts by hand.

    A depth rule that is not registered stays the object that it is. An instance that was read, built or validated
    before is not looked at again.

    Raises
    ------
    InvalidInputError
        It breaks a rule of the document; with every problem and its path.
    UsageError
        It is no instance, such as the name of one.
    """
    require_a(Instance, instance)
    return instance.noted(VALID, lambda: _validated(instance)) or instance


def _validated(instance: Instance) -> Instance | None:
    valid = decode_instance_tree(lambda report: {"format": _FORMAT, **_plain(instance, "$", report)})
    jobs = tuple(starmap(_with_own_rule, zip(valid.jobs, instance.jobs, strict=True)))
    return valid if jobs == valid.jobs else as_valid(replace(valid, jobs=jobs))


def _with_own_rule(job: Job | ShapedJob, made: Job | ShapedJob) -> Job | ShapedJob:
    """The job with the depth rule that it was made with, where documents cannot name that."""
    if isinstance(job, Job) and isinstance(made, Job) and _unregistered(made.depth):
        return replace(job, depth=made.depth)
    return job


def _unregistered(value: object) -> bool:
    """Whether a value is a depth rule that documents cannot name."""
    return isinstance(value, DepthPlugin) and value.rule not in plugins()


class _Pairs(tuple[tuple[str, object], ...]):
    """The keys and values of an object, in which a key may stand twice."""


def _plain(value: object, place: Place, report: Report) -> Any:
    """A value as a parser of JSON would give it; what JSON has no form for is reported, and stays as it is."""
    if isinstance(value, Depth):
        value = encode_depth(FullDepth() if _unregistered(value) else value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = encode_part(value)
    if isinstance(value, _Pairs | Mapping):
        return _object(value if isinstance(value, _Pairs) else value.items(), place, report)
    if isinstance(value, list | tuple | range):
        return [_plain(item, (place, index), report) for index, item in enumerate(value)]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if not isinstance(value, bool | float | None):
        report.add(place, f"has no form in JSON: {type(value).__name__}")
    return value


def _object(pairs: Iterable[tuple[object, object]], place: Place, report: Report) -> Json:
    found: Json = {}
    for key, item in pairs:
        name = str.__str__(key) if isinstance(key, str) else repr(key)
        if not isinstance(key, str):
            report.add((place, name), "a key must be a string")
        elif name in found:
            report.add((place, name), "duplicate key")
        found[name] = _plain(item, (place, name), report)
    return found
