"""Instances of jobs that a user names in a few words, with what was assumed beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar, get_args

from jigsaw_opt.documents import InstanceBuilder
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, malformed, out_of_range
from jigsaw_opt.instances.architectures import ARCHITECTURES
from jigsaw_opt.instances.gpus import GPU_TYPES, data_sheet
from jigsaw_opt.instances.measured import DEPTHS, with_depth
from jigsaw_opt.instances.profiles import estimate_name, profile
from jigsaw_opt.instances.recipes import BATCHES
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.rules.report import Report
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.inputs.cluster_files import cluster_in_words
from jigsaw_opt.text import nearest, suggestion

Read = TypeVar("Read")
_FORM = (
    "NAME:MODEL[@BATCH]:WORKERS:ITERATIONS, or a duration as in 2d, 2h, 30min, 90s or 600ms in place of the iterations"
)
_WORDS = re.compile(
    r"(?P<name>[^:]+):(?P<model>[^:]+):(?P<workers>[0-9]{1,9})"
    r":(?P<amount>[0-9]{1,15}(?:\.[0-9]{1,9})?)(?P<unit>d|h|min|s|ms|us)?"
)
_DEADLINE = re.compile(r"(?:(?P<name>.+)=)?(?P<amount>[0-9]{1,15}(?:\.[0-9]{1,9})?)(?P<unit>d|h|min|s|ms|us)")
_MODEL = re.compile(r"(?P<network>.+?)@(?P<batch>[0-9]{1,9})")
_UNITS_US = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


@dataclass(frozen=True, slots=True)
class OwnJob:
    """A job in a few words.

    `name, model, workers`: its name; a measured model, or a known network as in ``resnet50`` or ``resnet50@128``;
    number of workers. `iterations, duration_us`: how many iterations, or for how many microseconds it runs alone on as
    many GPUs; one of the two. `release_us, weight, deadline_us`: as of a job of an instance.
    """

    name: str
    model: str
    workers: int
    iterations: int | None = None
    duration_us: int | None = None
    release_us: int = 0
    weight: int = 1
    deadline_us: int | None = None


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption: what the instance states and the user did not say."""

    what: str
    value: str


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """The wanted instance in words.

    `cluster`: the cluster, as `grid` reads it. `measured`: models by name, each a tree as `encode_model` writes it.
    `bandwidth`: bytes per second of a server's link; None for that of `grid`, or of `link`. `segments`: most segments
    of an estimated model. `depth, objective`: depth rule of all jobs, a name in `DEPTHS`; objective of
    the instance. ``period`` makes the horizon cyclic. `link`: measured bandwidth, in bytes per second, and latency, in
    microseconds, of all links; of a cluster of one server, of its fabric. None where nobody has measured.
    """

    name: str
    cluster: str
    jobs: Sequence[OwnJob]
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bandwidth: int | None = None
    segments: int = 6
    depth: str = "full"
    objective: Objective = "makespan"
    link: tuple[int, int] | None = None


def own_job(text: str) -> OwnJob:
    """Return a job from words such as ``train:resnet50:4:100`` or ``train:resnet50@128:4:2h``."""
    found = _WORDS.fullmatch(text.strip())
    if found is None or (found["unit"] is None and "." in found["amount"]):
        raise malformed("job", f"a job is {_FORM}; not {text!r}")
    if found["unit"] and not _us(found):
        raise out_of_range("job", f"a job runs for longer than 0; {text!r} does not")
    words = found["name"], found["model"], int(found["workers"])
    return OwnJob(*words, duration_us=_us(found)) if found["unit"] else OwnJob(*words, int(found["amount"]))


def with_deadlines(jobs: Sequence[OwnJob], words: Sequence[str], complete: bool = True) -> list[OwnJob]:
    """Return jobs with deadlines from words such as ``2d``, of all jobs, and ``train=2h``, of one, which goes before.

    `complete`: whether these are all jobs. Else a name that none of them has is left alone.
    """
    names, wrong, of = [job.name for job in jobs], Report(), dict[str | None, int]()
    for word in words:
        found = _DEADLINE.fullmatch(word.strip())
        name = found and found["name"]
        if found is None:
            message = f"a deadline is JOB=TIME, or TIME of all jobs, as in a=2h, 3d, 90s or 600ms; not {word!r}"
            wrong.add("deadline", message, code="malformed")
        elif name in of:
            of_whom = "all jobs have" if name is None else f"job {name!r} has"
            wrong.add("deadline", f"{of_whom} a deadline before {word!r}; one is taken", code="duplicate-name")
        elif name is None or name in names:
            of[name] = _us(found)
        elif complete:
            wrong.add("deadline", f"no job {name!r}; {nearest(name, names)}", code="unknown-name")
    if wrong.problems:
        raise UsageError.of(wrong.problems)
    return [replace(job, deadline_us=of.get(job.name, of.get(None))) for job in jobs]


def _us(found: re.Match[str]) -> int:
    return round(Decimal(found["amount"]) * _UNITS_US[found["unit"]])


def jobs_of(workload: Workload, model: str) -> tuple[OwnJob, ...]:
    """Return the jobs of a workload; those that state only their duration have the model `model`."""
    wrong, found = Report(), []
    for job in workload.jobs:
        if job.iterations is None:
            wrong.add(f"job {job.name}", f"job {job.name!r} has no number of iterations", code="missing-field")
        own = OwnJob(job.name, job.model, job.gpus, job.iterations, None, job.submit_us, job.weight)
        timed = replace(own, model=model, iterations=None, duration_us=job.duration_us)
        found.append(own if job.duration_us is None else timed)
    if wrong.problems:
        raise UsageError.of(wrong.problems)
    return tuple(found)


def own_instance(request: OwnRequest) -> tuple[Instance, tuple[Assumption, ...]]:
    """Return the instance that was asked for, and what it states that nobody said."""
    report = Report()
    _check_words(request, report)
    cluster = attempt(partial(_cluster, request), "cluster", report)
    networks = _networks(request, cluster, report)
    report.raise_if_any()
    assert cluster is not None
    drawn, spelt = _spelt_as_cluster(_drawn(request, cluster, networks))
    performance = Profiled(drawn.cluster, drawn.models)
    alone = [TraceJob(job.name, 0, job.model, job.workers, 1) for job in drawn.data_parallel]
    for index, job in enumerate(alone):
        if (reason := performance.unknown(job)) is not None:
            place = f"$.jobs[{index}]"
            report.note(_why(performance, job.model, place) or Problem(place, reason, code="does-not-fit"))
    report.raise_if_any()
    times_us = [performance.alone_us(job) for job in alone]
    counts = [
        job.iterations if own.duration_us is None else max(1, round(own.duration_us / time_us))
        for job, own, time_us in zip(drawn.data_parallel, request.jobs, times_us, strict=True)
    ]
    jobs = tuple(replace(job, iterations=n) for job, n in zip(drawn.data_parallel, counts, strict=True))
    made = with_depth(replace(drawn, jobs=jobs), request.depth)
    assumed = [*_of_cluster(request, cluster), *spelt, *_of_models(networks), *_of_jobs(request, counts, times_us)]
    return made, (*assumed, *_of_depth(made, counts))


def _spelt_as_cluster(instance: Instance) -> tuple[Instance, list[Assumption]]:
    """Give models the cluster's names of their types of GPU, and tell which were taken for which."""
    types = tuple(dict.fromkeys(server.gpu_type for server in instance.cluster.servers))
    models, assumed = {}, []
    for name, model in instance.models.items():
        taken = model.names_matching(types)
        models[name] = model.also_named(taken)
        told = ", ".join(f"{own} for {other}" for other, own in taken.items())
        assumed += [Assumption(f"model {name}", f"its times on {told}")] if taken else []
    return replace(instance, models=models), assumed


def _why(performance: Profiled, name: str, path: str) -> Problem | None:
    """Return why no GPU of the cluster runs a model; None where some do."""
    model, servers = performance.models[name], performance.cluster.servers
    fitting = [server.gpu_memory for server in servers if server.gpu_type in model.gpu_types]
    if not fitting:
        types, own = sorted({server.gpu_type for server in servers}), ", ".join(model.gpu_types) or "no type"
        wrong = f"model {name!r} has times on {own}; the cluster has {', '.join(types)}"
        hint = f"jigsaw profile --gpu-type {types[0]} writes times of this name"
        return Problem(path, wrong, hint, code="unknown-name")
    need, most = needed_bytes([(model.state_bytes, model.activation_bytes()[-1])]), max(fitting)
    wrong = f"a worker of model {name!r} takes {need / 1e9:.1f} GB, and a GPU has {most / 1e9:g}"
    return Problem(path, wrong, code="does-not-fit") if need > most else None


def _check_words(request: OwnRequest, report: Report) -> None:
    """Check the words that concern the whole instance, and add what is wrong."""
    words = {"depth": (request.depth, DEPTHS), "objective": (request.objective, get_args(Objective))}
    for what, (value, known) in words.items():
        if value not in known:
            message = f"is one of {', '.join(known)}, not {value!r}"
            report.add(what, message, suggestion(value, known), code="unknown-value")
    bandwidth, latency_us = request.link or (1, 0)
    numbers = {"bandwidth": (request.bandwidth, 1), "segments": (request.segments, 1)}
    numbers |= {"bandwidth of the link": (bandwidth, 1), "latency of the link": (latency_us, 0)}
    for what, (number, least) in numbers.items():
        if number is not None and number < least:
            report.add(what, f"is at least {least}, not {number}", code="out-of-range")
    if not request.jobs:
        report.add("jobs", "there is none", f"a job is {_FORM}", code="empty")
    for job in request.jobs if request.objective == "period" else ():
        if job.duration_us is not None:
            report.add(f"job {job.name}", "has a duration; a period has iterations", code="contradiction")


def attempt(read: Callable[[], Read], where: str, report: Report) -> Read | None:
    """Return the value that is read; where it is wrong, note the problems, those of usage as of `where`."""
    try:
        return read()
    except InvalidInputError as error:
        report.problems += error.problems
    except UsageError as error:
        report.problems += error.problems_of(where)
    return None


def _cluster(request: OwnRequest) -> Cluster:
    """Return the cluster with the links that are asked for."""
    cluster = cluster_in_words(request.cluster)
    if cluster is None:
        raise malformed("cluster", f"is SERVERSxGPUS:TYPE, as in 4x8:v100, not {request.cluster!r}")
    rates = {} if request.bandwidth is None else {"bandwidth": request.bandwidth}
    if request.link is not None:
        bandwidth, latency_us = request.link
        if len(cluster.servers) == 1:
            only = altered(cluster.servers[0], fabric_bandwidth=bandwidth, fabric_latency_us=latency_us)
            cluster = altered(cluster, servers=(only,))
        else:
            rates = {"bandwidth": bandwidth, "latency_us": latency_us} | rates
    return altered(cluster, links=tuple(altered(link, **rates) for link in cluster.links)) if rates else cluster


def _networks(request: OwnRequest, cluster: Cluster | None, report: Report) -> dict[str, Model]:
    """Return estimated models by the words that jobs use for them; words of measured models are left out."""
    found: dict[str, Model] = {}
    for word in dict.fromkeys(job.model for job in request.jobs):
        network, batch = _network(word)
        if word in request.measured:
            continue
        if network not in ARCHITECTURES:
            known = nearest(network, (*ARCHITECTURES, *request.measured))
            report.add(f"model {word}", "is not known", f"{known}; a profile adds others", code="unknown-name")
        elif batch < 1:
            report.add(f"model {word}", "has a batch of at least 1", code="out-of-range")
        elif cluster is not None and _data_sheets(word, cluster, report) and request.segments >= 1:
            types = tuple(dict.fromkeys(server.gpu_type for server in cluster.servers))
            found[word] = profile(network, batch, types, min(request.segments, len(ARCHITECTURES[network]())))
    return found


def _network(word: str) -> tuple[str, int]:
    """Return network and batch, the usual one where the word has none."""
    found = _MODEL.fullmatch(word)
    return (found["network"], int(found["batch"])) if found else (word, BATCHES.get(word, 1))


def _data_sheets(word: str, cluster: Cluster, report: Report) -> bool:
    """Return whether all types of GPUs have figures to estimate from."""
    unknown = sorted({server.gpu_type for server in cluster.servers if data_sheet(server.gpu_type) is None})
    for kind in unknown:
        hint = f"known are {', '.join(GPU_TYPES)}; others take a measured profile"
        report.add(f"model {word}", f"cannot be estimated on GPUs of type {kind!r}", hint, code="unsupported")
    return not unknown


def _drawn(request: OwnRequest, cluster: Cluster, networks: Mapping[str, Model]) -> Instance:
    """Return the instance, with one iteration of jobs by duration."""
    horizon: Horizon = "cyclic" if request.objective == "period" else "finite"
    builder = InstanceBuilder(request.name, horizon=horizon, objective=request.objective)
    builder.add_cluster(cluster)
    names = {word: estimate_name(*_network(word)) for word in networks}
    builder.add_models({names[word]: model for word, model in networks.items()})
    used = {job.model for job in request.jobs}
    for name, tree in request.measured.items():
        if name in used:
            builder.add_model(name, tree)
    for job in request.jobs:
        builder.add_job(
            job.name,
            model=names.get(job.model, job.model),
            workers=job.workers,
            iterations=1 if job.iterations is None else job.iterations,
            release_us=job.release_us,
            weight=job.weight,
            deadline_us=job.deadline_us,
        )
    return builder.build()


def _of_cluster(request: OwnRequest, cluster: Cluster) -> list[Assumption]:
    drawn = request.cluster.partition(":")[0].partition(",")[0] == "nvidia-smi"
    unsaid = request.bandwidth is None and request.link is None
    told = {} if drawn else {"topology": "all servers behind one switch"}
    if unsaid and not drawn:
        told["bandwidth of a server's link"] = f"{cluster.links[0].bandwidth * 8 / 1e9:g} Gb/s"
    elif unsaid and cluster.links:
        rates = sorted({link.bandwidth for link in cluster.links})
        told["bandwidth of links"] = ", ".join(f"{rate / 1e9:g} GB/s" for rate in rates)
    assumed = [Assumption(*one) for one in told.items()]
    kinds = ((server.gpu_type, server.gpu_memory, server.fabric_bandwidth) for server in cluster.servers)
    for kind, memory, fabric in dict.fromkeys(kinds):
        what = f"GPUs of type {kind}{'' if data_sheet(kind) else ', which has no data sheet here'}"
        value = f"{memory / 1e9:g} GB of memory, {fabric / 1e9:g} GB/s within a server"
        assumed.append(Assumption(what, value))
    return [*assumed, Assumption("depth rule of all jobs", request.depth), Assumption("objective", request.objective)]


def _of_models(networks: Mapping[str, Model]) -> list[Assumption]:
    assumed = []
    for word, model in networks.items():
        blocks = ", ".join(f"{model.block_us(kind)[-1]} us a block on {kind}" for kind in model.gpu_types)
        made = f"batch {_network(word)[1]} a worker, {len(model.segments)} segments, {blocks}"
        assumed.append(Assumption(f"model {word}", f"estimated from data sheets, not measured: {made}"))
    return assumed


def _of_jobs(request: OwnRequest, counts: Sequence[int], times_us: Sequence[int]) -> list[Assumption]:
    return [
        Assumption(f"job {job.name}", f"{count} iterations of {job.model}, each of {time_us} us alone")
        for job, count, time_us in zip(request.jobs, counts, times_us, strict=True)
        if job.duration_us is not None
    ]


def _of_depth(instance: Instance, counts: Sequence[int]) -> list[Assumption]:
    """Return which jobs got more iterations than were asked for."""
    return [
        Assumption(f"job {job.name}", f"{job.iterations} iterations for the progress of {count} at full depth")
        for job, count in zip(instance.data_parallel, counts, strict=True)
        if job.iterations != count
    ]
