"""Instances of jobs that a user names in a few words, with what was assumed beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, get_args

from jigsaw_opt.documents import InstanceBuilder
from jigsaw_opt.errors import InvalidInputError, Problem, UsageError, malformed, out_of_range
from jigsaw_opt.instances.architectures import ARCHITECTURES
from jigsaw_opt.instances.gpus import GPU_TYPES, data_sheet
from jigsaw_opt.instances.profiles import estimate_name, profile
from jigsaw_opt.instances.recipes import BATCHES
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.depth import CHOICES, chosen_depth
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.simulation.inputs.cluster_files import cluster_in_words
from jigsaw_opt.text import nearest, suggestion

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
    of an estimated model. `depth, objective`: depth rule of all jobs, a name in `CHOICES` of depth rules; objective of
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
    names, wrong = [job.name for job in jobs], []
    of_all: int | None = None
    of_one: dict[str, int] = {}
    for word in words:
        found = _DEADLINE.fullmatch(word.strip())
        if found is None:
            message = f"a deadline is JOB=TIME, or TIME of all jobs, as in a=2h, 3d, 90s or 600ms; not {word!r}"
            wrong.append(Problem("deadline", message, code="malformed"))
        elif found["name"] in of_one or (found["name"] is None and of_all is not None):
            of_whom = "all jobs have" if found["name"] is None else f"job {found['name']!r} has"
            wrong.append(
                Problem("deadline", f"{of_whom} a deadline before {word!r}; one is taken", code="duplicate-name")
            )
        elif found["name"] is None:
            of_all = _us(found)
        elif found["name"] in names:
            of_one[found["name"]] = _us(found)
        elif complete:
            wrong.append(
                Problem("deadline", f"no job {found['name']!r}; {nearest(found['name'], names)}", code="unknown-name")
            )
    if wrong:
        raise UsageError.of(wrong)
    return [replace(job, deadline_us=of_one.get(job.name, of_all)) for job in jobs]


def _us(found: re.Match[str]) -> int:
    return round(Decimal(found["amount"]) * _UNITS_US[found["unit"]])


def jobs_of(workload: Workload, model: str) -> tuple[OwnJob, ...]:
    """Return the jobs of a workload; those that state only their duration have the model `model`."""
    wrong = [
        Problem(f"job {job.name}", f"job {job.name!r} has no number of iterations", code="missing-field")
        for job in workload.jobs
        if job.iterations is None
    ]
    if wrong:
        raise UsageError.of(wrong)
    return tuple(_of_trace(job, model) for job in workload.jobs)


def _of_trace(job: TraceJob, model: str) -> OwnJob:
    if job.duration_us is None:
        return OwnJob(job.name, job.model, job.gpus, job.iterations, None, job.submit_us, job.weight)
    return OwnJob(job.name, model, job.gpus, None, job.duration_us, job.submit_us, job.weight)


def own_instance(request: OwnRequest) -> tuple[Instance, tuple[Assumption, ...]]:
    """Return the instance that was asked for, and what it states that nobody said."""
    problems: list[Problem] = []
    _check_words(request, problems)
    cluster = _cluster(request, problems)
    networks = _networks(request, cluster, problems)
    if problems or cluster is None:
        raise InvalidInputError(problems)
    drawn, spelt = _spelt_as_cluster(_drawn(request, cluster, networks))
    performance = Profiled(drawn.cluster, drawn.models)
    alone = [TraceJob(job.name, 0, job.model, job.workers, 1) for job in drawn.data_parallel]
    for index, job in enumerate(alone):
        reason = performance.unknown(job)
        if reason is not None:
            problems.append(
                _why(performance, job.model, f"$.jobs[{index}]")
                or Problem(f"$.jobs[{index}]", reason, code="does-not-fit")
            )
    if problems:
        raise InvalidInputError(problems)
    times_us = [performance.alone_us(job) for job in alone]
    counts = [_iterations(own, time_us) for own, time_us in zip(request.jobs, times_us, strict=True)]
    jobs = tuple(
        replace(job, iterations=n, depth=chosen_depth(request.depth, job.workers, drawn.models[job.model].depth, n))
        for job, n in zip(drawn.data_parallel, counts, strict=True)
    )
    assumed = [*_of_cluster(request, cluster), *spelt, *_of_models(request, networks)]
    return replace(drawn, jobs=jobs), (*assumed, *_of_jobs(request, counts, times_us))


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
        return Problem(
            path, wrong, f"jigsaw profile --gpu-type {types[0]} writes times of this name", code="unknown-name"
        )
    need, most = needed_bytes([(model.state_bytes, model.activation_bytes()[-1])]), max(fitting)
    wrong = f"a worker of model {name!r} takes {need / 1e9:.1f} GB, and a GPU has {most / 1e9:g}"
    return Problem(path, wrong, code="does-not-fit") if need > most else None


def _iterations(job: OwnJob, alone_us: int) -> int:
    if job.duration_us is not None:
        return max(1, round(job.duration_us / alone_us))
    return 1 if job.iterations is None else job.iterations


def _check_words(request: OwnRequest, problems: list[Problem]) -> None:
    """Check the words that concern the whole instance, and add what is wrong."""
    for what, value, known in (
        ("depth", request.depth, CHOICES),
        ("objective", request.objective, get_args(Objective)),
    ):
        if value not in known:
            message = f"is one of {', '.join(known)}, not {value!r}"
            problems.append(Problem(what, message, suggestion(value, known), code="unknown-value"))
    for what, number, least in (
        ("bandwidth", request.bandwidth, 1),
        ("segments", request.segments, 1),
        ("bandwidth of the link", request.link and request.link[0], 1),
        ("latency of the link", request.link and request.link[1], 0),
    ):
        if number is not None and number < least:
            problems.append(Problem(what, f"is at least {least}, not {number}", code="out-of-range"))
    if not request.jobs:
        problems.append(Problem("jobs", "there is none", f"a job is {_FORM}", code="empty"))
    if request.objective == "period":
        timed = (job.name for job in request.jobs if job.duration_us is not None)
        problems.extend(
            Problem(f"job {name}", "has a duration; a period has iterations", code="contradiction") for name in timed
        )


def _cluster(request: OwnRequest, problems: list[Problem]) -> Cluster | None:
    """Return the cluster, or None with what is wrong with its words."""
    try:
        cluster = cluster_in_words(request.cluster)
    except UsageError as error:
        problems.extend(error.problems_of("cluster"))
        return None
    except InvalidInputError as error:
        problems.extend(error.problems)
        return None
    if cluster is None:
        problems.append(
            Problem("cluster", f"is SERVERSxGPUS:TYPE, as in 4x8:v100, not {request.cluster!r}", code="malformed")
        )
        return None
    if request.link is not None and len(cluster.servers) == 1:
        bandwidth, latency_us = request.link
        only = altered(cluster.servers[0], fabric_bandwidth=bandwidth, fabric_latency_us=latency_us)
        cluster = altered(cluster, servers=(only,))
    elif request.link is not None:
        bandwidth, latency_us = request.link
        links = (altered(link, bandwidth=bandwidth, latency_us=latency_us) for link in cluster.links)
        cluster = altered(cluster, links=tuple(links))
    if request.bandwidth is None:
        return cluster
    return altered(cluster, links=tuple(altered(link, bandwidth=request.bandwidth) for link in cluster.links))


def _networks(request: OwnRequest, cluster: Cluster | None, problems: list[Problem]) -> dict[str, Model]:
    """Return estimated models by the words that jobs use for them; words of measured models are left out."""
    found: dict[str, Model] = {}
    for word in dict.fromkeys(job.model for job in request.jobs):
        network, batch = _network(word)
        if word in request.measured:
            continue
        if network not in ARCHITECTURES:
            known = nearest(network, (*ARCHITECTURES, *request.measured))
            problems.append(
                Problem(f"model {word}", "is not known", f"{known}; a profile adds others", code="unknown-name")
            )
        elif batch < 1:
            problems.append(Problem(f"model {word}", "has a batch of at least 1", code="out-of-range"))
        elif cluster is not None and _data_sheets(word, cluster, problems) and request.segments >= 1:
            types = tuple(dict.fromkeys(server.gpu_type for server in cluster.servers))
            found[word] = profile(network, batch, types, min(request.segments, len(ARCHITECTURES[network]())))
    return found


def _network(word: str) -> tuple[str, int]:
    """Return network and batch, the usual one where the word has none."""
    found = _MODEL.fullmatch(word)
    return (found["network"], int(found["batch"])) if found else (word, BATCHES.get(word, 1))


def _data_sheets(word: str, cluster: Cluster, problems: list[Problem]) -> bool:
    """Return whether all types of GPUs have figures to estimate from."""
    unknown = sorted({server.gpu_type for server in cluster.servers if data_sheet(server.gpu_type) is None})
    for kind in unknown:
        hint = f"known are {', '.join(GPU_TYPES)}; others take a measured profile"
        problems.append(
            Problem(f"model {word}", f"cannot be estimated on GPUs of type {kind!r}", hint, code="unsupported")
        )
    return not unknown


def _key(word: str) -> str:
    """Return what the document calls an estimated model."""
    return estimate_name(*_network(word))


def _drawn(request: OwnRequest, cluster: Cluster, networks: Mapping[str, Model]) -> Instance:
    """Return the instance, with one iteration of jobs by duration."""
    horizon: Horizon = "cyclic" if request.objective == "period" else "finite"
    builder = InstanceBuilder(request.name, horizon=horizon, objective=request.objective)
    builder.add_cluster(cluster)
    builder.add_models({_key(word): model for word, model in networks.items()})
    used = {job.model for job in request.jobs}
    for name, tree in request.measured.items():
        if name in used:
            builder.add_model(name, tree)
    for job in request.jobs:
        builder.add_job(
            job.name,
            model=_key(job.model) if job.model in networks else job.model,
            workers=job.workers,
            iterations=1 if job.iterations is None else job.iterations,
            release_us=job.release_us,
            weight=job.weight,
            deadline_us=job.deadline_us,
        )
    return builder.build()


def _of_cluster(request: OwnRequest, cluster: Cluster) -> list[Assumption]:
    drawn = request.cluster.partition(":")[0].partition(",")[0] == "nvidia-smi"
    assumed = [
        *(() if drawn else (Assumption("topology", "all servers behind one switch"),)),
        *(
            Assumption(
                f"GPUs of type {kind}{'' if data_sheet(kind) else ', which has no data sheet here'}",
                f"{memory / 1e9:g} GB of memory, {fabric / 1e9:g} GB/s within a server",
            )
            for kind, memory, fabric in dict.fromkeys(
                (server.gpu_type, server.gpu_memory, server.fabric_bandwidth) for server in cluster.servers
            )
        ),
        Assumption("depth rule of all jobs", request.depth),
        Assumption("objective", request.objective),
    ]
    if drawn and cluster.links and request.bandwidth is None and request.link is None:
        rates = sorted({link.bandwidth for link in cluster.links})
        assumed.insert(0, Assumption("bandwidth of links", ", ".join(f"{rate / 1e9:g} GB/s" for rate in rates)))
    if request.bandwidth is None and request.link is None and not drawn:
        assumed.insert(1, Assumption("bandwidth of a server's link", f"{cluster.links[0].bandwidth * 8 / 1e9:g} Gb/s"))
    return assumed


def _of_models(request: OwnRequest, networks: Mapping[str, Model]) -> list[Assumption]:
    return [
        Assumption(
            f"model {word}",
            f"estimated from data sheets, not measured: batch {_network(word)[1]} a worker, "
            f"{len(model.segments)} segments, "
            + ", ".join(f"{model.block_us(kind)[-1]} us a block on {kind}" for kind in model.gpu_types),
        )
        for word, model in networks.items()
    ]


def _of_jobs(request: OwnRequest, counts: Sequence[int], times_us: Sequence[int]) -> list[Assumption]:
    return [
        Assumption(f"job {job.name}", f"{count} iterations of {job.model}, each of {time_us} us alone")
        for job, count, time_us in zip(request.jobs, counts, times_us, strict=True)
        if job.duration_us is not None
    ]
