"""A simulation in words, as on the command line or in a sweep, and what it takes to run it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from pathlib import Path

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.documents.readers.traces import READERS, read_trace
from jigsaw_opt.documents.reading import read_file
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.documents.workload_csv import columns_of
from jigsaw_opt.errors import InvalidInputError, Problems, UsageError, kind_of, require_a
from jigsaw_opt.instances.sources import instance_from, workload_path
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.kinds import FROM_TRACE, performance_of
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.policy import Policy, choose
from jigsaw_opt.simulation.cluster_files import cluster_in_words
from jigsaw_opt.simulation.clusters import begins_as_grid, require_size
from jigsaw_opt.simulation.contention import contention_of
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.failure_words import failures_of
from jigsaw_opt.simulation.mix import with_models
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.simulation.wide_jobs import require_choice, why_too_wide, without_too_wide
from jigsaw_opt.text import nearest, readable

__all__ = ["Prepared", "SimulationRequest", "prepare", "prepare_all"]

_MODELS_FOR_DURATIONS = "has a duration and no model; --draw-models gives it one, --performance seconds needs none"
_MOST_S = 9e9
"""The longest time, 285 years; times in traces are up to 2^53 - 1 microseconds."""


@dataclass(frozen=True, slots=True)
class SimulationRequest:
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
    foreground_gpus
        Jobs that ask for at least so many GPUs are in the foreground, beside those of which the workload says so; None
        for those alone.
    failures
        As `failures_of` reads it; empty for none.
    columns
        What workloads in our own format call their columns, as `columns_of` reads it.
    too_wide
        What becomes of a workload with a job that needs more GPUs than there are: ``refuse`` it, or ``skip`` the job.
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
    foreground_gpus: int | None = None
    failures: str = ""
    columns: str = ""
    too_wide: str = "refuse"

    def about(self) -> dict[str, object]:
        """The words by name, as text that can be written."""
        return {name: readable(word) if isinstance(word, str) else word for name, word in asdict(self).items()}


_KINDS: Mapping[type, str] = {str: "text", Real: "a number", Integral: "a whole number"}
_TEXTS = ("workload", "cluster", "policy", "performance", "contention", "failures", "columns", "too_wide")
_OPTIONAL = "foreground_gpus"
_FIELDS: Mapping[str, type] = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(("round_s", "restart_s"), Real),
    **dict.fromkeys(("seed", _OPTIONAL), Integral),
}
"""Of a request by name, which type each has; the optional one may be None."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What it takes to run a request: everything was read and fits together.

    Parameters
    ----------
    setting, policy, options
        What is simulated, and who decides.
    contention
        Of the setting, in words.
    figures
        Tells performance models of one kind apart.
    """

    setting: Setting
    policy: Policy
    options: Mapping[str, str]
    contention: str
    figures: str

    def start(self) -> Simulation:
        """A simulation at its beginning."""
        return Simulation(self.setting, self.policy, self.options)

    def inputs(self) -> str:
        """Text that tells equal simulations from others."""
        setting = self.setting
        parts = (setting.cluster, setting.workload, setting.performance.name, self.figures, self.contention)
        numbers = (setting.round_us, setting.restart_us, setting.seed)
        failures = () if setting.failures is None else (setting.failures,)
        return repr((parts, numbers, self.policy.name, sorted(self.options.items()), *failures))


def prepare(request: SimulationRequest, find_instance: Callable[[str], Instance] = instance_from) -> Prepared:
    """Read everything that a request names; see `prepare_all`."""
    return prepare_all([request], find_instance)[0]


def prepare_all(
    requests: Iterable[SimulationRequest], find_instance: Callable[[str], Instance] = instance_from
) -> list[Prepared]:
    """Read everything that requests name.

    Parameters
    ----------
    requests
        The words.
    find_instance
        The instance that a name stands for; by default as in `instance_from`.

    Raises
    ------
    UsageError
        With every problem of every request, each once: what they name is not there, or does not fit together.
    InvalidInputError
        The same, where traces, instances or the figures of a performance model are among what is wrong.
    """
    problems = Problems()
    made: list[Prepared] = []
    for request in requests:
        require_a(SimulationRequest, request)
        _require_kinds(request)
        own = Problems()
        prepared = _prepared(request, find_instance, own)
        problems.include(own)
        if prepared is not None:
            made.append(prepared)
    problems.tell()
    return made


def _require_kinds(request: SimulationRequest) -> None:
    """Refuse words that are none, such as a path or a cluster, and numbers that are none."""
    wrong = [
        f"{name} is {_KINDS[kind]}, not {kind_of(value)}"
        for name, kind in _FIELDS.items()
        if not isinstance(value := getattr(request, name), kind) and not (name == _OPTIONAL and value is None)
    ]
    if wrong:
        raise UsageError(*wrong)


def _prepared(
    request: SimulationRequest, find_instance: Callable[[str], Instance], problems: Problems
) -> Prepared | None:
    """What it takes to run a request, or None where there are problems."""
    with problems.of("policy"):
        policy, options = choose(request.policy)
    with problems.of("round"):
        round_us = _microseconds("round", request.round_s)
    with problems.of("restart"):
        restart_us = _microseconds("restart", request.restart_s)
    with problems.of("seed"):
        seed = _seed(request.seed)
    with problems.of("too wide"):
        require_choice(request.too_wide)
    with problems.of("foreground"):
        wide = _wide(request.foreground_gpus)
    # Without a cluster or a performance model the trace is still read, for what is wrong with it by itself.
    accept: Accept = anything
    with problems.of("cluster"):
        cluster, models = _cluster(request.cluster, find_instance)
        accept = _accepting(request, cluster, None)
        with problems.of("contention"):
            contention = contention_of(request.contention, cluster)
        with problems.of("failures"):
            failures = failures_of(request.failures, cluster, request.seed)
        with problems.of("performance"):
            performance = _performance(request, cluster, models)
            accept = _accepting(request, cluster, None if request.draw_models else performance)
    with problems.of(request.workload):
        workload = _trace(request, accept)
        if not problems:
            workload = _with_foreground(without_too_wide(workload, cluster.gpu_count), wide)
            workload, performance = _joined(request, cluster, workload, performance)
            setting = Setting(cluster, workload, performance, contention, round_us, restart_us, seed, failures)
            figures = hashlib.sha256(repr(performance.figures).encode()).hexdigest()
            return Prepared(setting, policy, options, request.contention, figures)
    return None


def _seed(seed: int) -> int:
    if seed < 0:
        raise UsageError(f"the seed is at least 0, not {seed}")
    return seed


def _wide(gpus: int | None) -> int | None:
    if gpus is not None and gpus < 1:
        raise UsageError(f"--foreground-gpus is at least 1, not {gpus}")
    return gpus


def _with_foreground(workload: Workload, gpus: int | None) -> Workload:
    """The workload with all jobs of at least so many GPUs in the foreground."""
    if gpus is None:
        return workload
    jobs = (replace(job, foreground=job.foreground or job.gpus >= gpus) for job in workload.jobs)
    return replace(workload, jobs=tuple(jobs))


def _microseconds(what: str, seconds: float) -> int:
    if not 0 <= seconds <= _MOST_S:
        bound = f"at most {_MOST_S:g}" if seconds > _MOST_S else "at least 0"
        raise UsageError(f"the {what} is a number of seconds of {bound}, not {seconds}")
    return round(seconds * 1_000_000)


def _cluster(text: str, find_instance: Callable[[str], Instance]) -> tuple[Cluster, Mapping[str, Model] | None]:
    """The cluster, and the models of the instance that it comes from."""
    made = None if exists(text) else cluster_in_words(text)
    if made is not None:
        require_size(made, text)
        return made, None
    if begins_as_grid(text) and not exists(text):
        raise UsageError(f"SERVERSxGPUS:TYPE is wanted, as in 2x4:a100 or 2x4:v100+1x8:a100, not {text!r}")
    with _hinting("a cluster in words is SERVERSxGPUS:TYPE, as in 2x4:a100", text):
        instance = find_instance(text)
    require_size(instance.cluster, text)
    return instance.cluster, instance.models


@contextmanager
def _hinting(hint: str, source: str) -> Iterator[None]:
    """Say what else could have stood there in place of a file that does not exist."""
    try:
        yield
    except InvalidInputError as error:
        if exists(source):
            raise
        raise InvalidInputError(replace(it, hint=it.hint or hint) for it in error.problems) from error


def _performance(
    request: SimulationRequest, cluster: Cluster, models: Mapping[str, Model] | None
) -> Performance | None:
    """The performance model; None where its figures stand in the trace, which is to be read first."""
    kind, source = _kind_and_source(request)
    performance: Performance | None = None
    if models is not None and request.performance in ("", Profiled.name):
        performance = Profiled(cluster, models)
    elif kind not in FROM_TRACE:
        performance = performance_of(kind or "seconds", source, cluster)
    if request.draw_models and not isinstance(performance, Profiled):
        raise UsageError(
            "--draw-models draws from the models of an instance, and there are none: "
            "make one, as by `jigsaw new --cluster 4x8:a100 --job a:resnet50:1:1 -o FILE`, and give --cluster FILE"
        )
    return performance


def _kind_and_source(request: SimulationRequest) -> tuple[str, Path | None]:
    kind, _, source = request.performance.partition(":")
    return kind, Path(source) if source else None


def _joined(
    request: SimulationRequest, cluster: Cluster, workload: Workload, performance: Performance | None
) -> tuple[Workload, Performance]:
    """What each takes from the other: the model its figures from the trace, the jobs a drawn model."""
    if performance is None:
        performance = performance_of(*_kind_and_source(request), cluster, workload.stages)
    if request.draw_models and isinstance(performance, Profiled):
        workload = with_models(workload, performance, sorted(performance.models), request.seed)
    return workload, performance


def _trace(request: SimulationRequest, accept: Accept) -> Workload:
    text, columns = request.workload, columns_of(request.columns)
    name, colon, file = text.partition(":")
    if colon and name not in READERS and name.isalnum() and not exists(text):
        raise UsageError(f"no format {name!r} of traces; {nearest(name, sorted(READERS))}")
    if name not in READERS or not file:
        name, file = "csv", text
    data, source = read_file(workload_path(file)), readable(file)
    # What is wrong with columns that the caller names is said of them.
    with nullcontext() if columns else expecting(data, source, name):
        return read_trace(name, data, source, accept, columns)


def _accepting(request: SimulationRequest, cluster: Cluster, performance: Performance | None) -> Accept:
    """What is wrong with a job: more GPUs than there are, or nothing that the performance model knows."""
    count = cluster.gpu_count

    def problems(job: TraceJob) -> Sequence[str]:
        wide = why_too_wide(job, job.fewest, count)
        if wide is not None and request.too_wide == "skip":
            return ()
        found = [] if wide is None else [wide]
        reason = None if performance is None else performance.unknown(job)
        if reason is not None:
            of_duration = isinstance(performance, Profiled) and job.duration_us is not None
            found.append(f"job {job.name!r} {_MODELS_FOR_DURATIONS}" if of_duration else reason)
        return found

    return problems
