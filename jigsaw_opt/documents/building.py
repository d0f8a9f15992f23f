"""Instances that are built in Python, or differ from a given one in one thing, validated as documents are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from jigsaw_opt.arguments import typed
from jigsaw_opt.documents.decoding import decode_instance_tree
from jigsaw_opt.errors import wrong_input
from jigsaw_opt.problem import Cluster, Depth, FullDepth, Instance, Job, Link, Model, Segment, TaskGraph, TaskGraphJob
from jigsaw_opt.problem.efficiency import Efficiency
from jigsaw_opt.problem.exchange import JobExchange
from jigsaw_opt.problem.instance import FORMAT, Horizon, Objective
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.rules.keyed import plain
from jigsaw_opt.text import suggestion

Json = dict[str, Any]
_OPTIONAL = {field.name for field in fields(Job) if field.default is None}
"""Keys of a job that are not written where None is given."""


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
        self._cluster: Json = {"servers": [], "switches": [], "links": []}
        self._models: list[tuple[str, object]] = []
        self._jobs: list[object] = []

    def add_server(
        self, name: str, *, gpu_type: str, gpus: int, gpu_memory: int, fabric_bandwidth: int, fabric_latency_us: int = 0
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
        self._cluster["servers"].append(_given(locals()))

    def add_switch(self, name: str) -> None:
        """Add a switch."""
        self._cluster["switches"].append(name)

    def add_link(self, name: str, ends: tuple[str, str], *, bandwidth: int, latency_us: int = 0) -> None:
        """Add a link between two servers or switches.

        Parameters
        ----------
        name
            Its name.
        ends
            Names of the two things that it joins.
        bandwidth
            Bytes a second.
        latency_us
            Latency of one step over it, in microseconds.
        """
        self._cluster["links"].append(_given(locals()))

    def add_route_policy(self, name: str, policy: RoutePolicy) -> None:
        """Add a policy that the routes of jobs which name it must keep.

        Parameters
        ----------
        name
            Its name.
        policy
            What the routes must keep.
        """
        self._cluster.setdefault("route_policies", {})[name] = plain(policy, flat=True)

    def add_power_cap(self, name: str, servers: Sequence[str], *, watts: int) -> None:
        """Add a limit on the watts that blocks draw at once on the GPUs of some servers.

        Parameters
        ----------
        name
            Its name.
        servers
            Names of the servers.
        watts
            The most that blocks on their GPUs draw together at any moment.
        """
        self._cluster.setdefault("power_caps", []).append(_given(locals()))

    def add_licence(self, name: str, count: int) -> None:
        """Add a licence, which jobs hold while they are present.

        Parameters
        ----------
        name
            Its name.
        count
            How many jobs may hold one at once.
        """
        self._cluster.setdefault("licences", {})[name] = count

    @typed
    def add_cluster(self, cluster: Cluster) -> None:
        """Add all servers, switches, links, route policies, power caps and licences of a cluster."""
        for key, parts in plain(cluster, flat=True).items():
            if isinstance(parts, dict):
                self._cluster[key] = self._cluster.get(key, {}) | parts
            else:
                self._cluster[key] = self._cluster.get(key, []) + parts

    def add_model(
        self,
        name: str,
        segments: Iterable[Segment] | Model | Mapping[str, Any],
        *,
        levels: Sequence[int] | None = None,
        state_factor: int | None = None,
        executor: Mapping[str, Any] | None = None,
        power_w: Mapping[str, int] | None = None,
        efficiency: Efficiency | Mapping[str, Any] | None = None,
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
        efficiency
            What iterations at lower levels are worth; None for what the model says, or where it is not known.
        """
        given = {"levels": levels, "state_factor": state_factor, "executor": executor, "power_w": power_w}
        given["efficiency"] = plain(efficiency, flat=True)
        self._models.append(
            (name, {**_whole(segments), **{key: value for key, value in given.items() if value is not None}})
        )

    def add_models(self, models: Mapping[str, Model]) -> None:
        """Add models by name, such as those of another instance."""
        self._models.extend((name, plain(model, flat=True)) for name, model in models.items())

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
        restart_us: int | None = None,
        licences: Sequence[str] | None = None,
        exchange: JobExchange | Mapping[str, Any] | None = None,
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
            Cycle-time limit on the cyclic horizon: an iteration takes no more microseconds on average; None for none.
        route_policy
            Which route policy its transfers keep; None for none.
        restart_us
            On the finite horizon, what a pause or a move in a phased plan costs, in microseconds; None for a job that
            does neither.
        licences
            Names of licences, of each of which it holds one while it is present; None for none.
        exchange
            How it exchanges gradients, where not all of them in each step; None for all.
        """
        self._add_job(
            _given(locals())
            | {"depth": FullDepth() if depth is None else depth, "exchange": plain(exchange, flat=True)}
        )

    def add_task_graph_job(
        self,
        name: str,
        shape: TaskGraph,
        *,
        iterations: int,
        release_us: int = 0,
        weight: int = 1,
        deadline_us: int | None = None,
        pace_us: int | None = None,
        route_policy: str | None = None,
        restart_us: int | None = None,
        licences: Sequence[str] | None = None,
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
        deadline_us, pace_us, route_policy, restart_us, licences
            As of `add_job`.
        """
        self._add_job(_given(locals()) | {"shape": plain(shape, flat=True)})

    def _add_job(self, job: Json) -> None:
        self._jobs.append({key: value for key, value in job.items() if value is not None or key not in _OPTIONAL})

    def build(self) -> Instance:
        """Build the instance of all that was added so far.

        Raises
        ------
        InvalidInputError
            It breaks a rule of the document; with every problem and its path.
        """
        twice = [name for name, count in Counter(name for name, _ in self._models).items() if count > 1]
        tree = plain(
            {
                "format": FORMAT,
                "name": self._name,
                "cluster": self._cluster,
                "models": dict(self._models),
                "jobs": self._jobs,
                "horizon": self._horizon,
                "objective": self._objective,
            }
        )
        return decode_instance_tree(tree, {id(tree["models"]): (tree["models"], twice)})


def _given(arguments: Json) -> Json:
    """Return the arguments of a method, which are the fields of what it adds."""
    return {key: value for key, value in arguments.items() if key != "self"}


def _whole(model: Iterable[Segment] | Model | Mapping[str, Any]) -> Json:
    """Return a model as the document has it, from whatever it is made of."""
    if not isinstance(model, Model | Mapping):  # what is no list of segments is refused with all that is wrong
        return {"segments": plain(list(model) if isinstance(model, Iterable) else model, flat=True)}
    whole: Json = plain(model, flat=True)
    report = whole.get("model")  # what `jigsaw profile --json` prints has the model beside what was measured
    return report if "segments" not in whole and isinstance(report, dict) else whole


@typed
def add_job(instance: Instance, job: Job | TaskGraphJob, models: Mapping[str, Model] | None = None) -> Instance:
    """Return the instance with one more job, the last one.

    Parameters
    ----------
    instance
        Stays as it is.
    job
        The new job.
    models
        Models by name that it needs and the instance lacks; one that the instance has is replaced.

    Raises
    ------
    InvalidInputError
        The result is no valid instance (specification: validity); with all problems.
    """
    return replace(instance, jobs=(*instance.jobs, job), models={**instance.models, **(models or {})})


@typed
def remove_job(instance: Instance, name: str) -> Instance:
    """Return the instance without the job of a name; its models stay.

    Parameters
    ----------
    instance
        The instance; it stays as it is.
    name
        Name of the job.

    Raises
    ------
    InvalidInputError
        There is no such job, or it is the only one.
    """
    _require("job", name, instance.jobs, "$.jobs")
    return replace(instance, jobs=tuple(job for job in instance.jobs if job.name != name))


@typed
def change_bandwidth(instance: Instance, link: str, bandwidth: int) -> Instance:
    """Return the instance with another bandwidth of a link.

    Parameters
    ----------
    instance
        The instance; it stays as it is.
    link
        Name of the link.
    bandwidth
        Bytes a second, at least 1.

    Raises
    ------
    InvalidInputError
        There is no such link, or the bandwidth is none.
    """
    links = instance.cluster.links
    changed = tuple(replace(known, bandwidth=bandwidth) if known.name == link else known for known in links)
    _require("link", link, links, "$.cluster.links")
    return replace(instance, cluster=replace(instance.cluster, links=changed))


def _require(kind: str, name: str, known: Iterable[Job | TaskGraphJob | Link], place: str) -> None:
    """Refuse a name that nothing of a kind has."""
    names = [one.name for one in known]
    if name not in names:
        told = f'no {kind} is called "{name}"'
        raise wrong_input(place, told, suggestion(str(name), names), code="unknown-name")
