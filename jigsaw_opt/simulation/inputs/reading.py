"""Reads what a simulation is of: for every part an object, or the words that the command line has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.file_bytes import read_file
from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.documents.readers.traces.registry import READERS, read_trace
from jigsaw_opt.documents.readers.traces.workload_csv import columns_of
from jigsaw_opt.documents.recognising import expecting
from jigsaw_opt.errors import (
    InvalidInputError,
    Problem,
    Problems,
    UsageError,
    argument,
    kind_of,
    malformed,
    out_of_range,
    unsupported,
)
from jigsaw_opt.instances.sources import instance_from, workload_path
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.model import Model
from jigsaw_opt.problem.network.contention import LinkSharing
from jigsaw_opt.problem.power import require_no_caps
from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.workload import TraceJob, Workload, is_name, job_problems
from jigsaw_opt.scheduling.performance import Contention, Performance
from jigsaw_opt.scheduling.performance.kinds import FROM_TRACE, performance_of, refuse_speeds, require_kind
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.policies import RECORDED
from jigsaw_opt.scheduling.policy import Policy, choose
from jigsaw_opt.simulation.engine.arrivals import with_dependencies_told
from jigsaw_opt.simulation.engine.outages import Failures, are_times, failures_of
from jigsaw_opt.simulation.engine.recorded import record_problems
from jigsaw_opt.simulation.engine.setting import Setting, told
from jigsaw_opt.simulation.inputs.cluster_files import cluster_in_words
from jigsaw_opt.simulation.inputs.clusters import begins_as_grid, require_count
from jigsaw_opt.simulation.inputs.contention import contention_of
from jigsaw_opt.simulation.inputs.workload_changes import (
    most_gpus_for,
    require_choice,
    why_too_wide,
    with_durations_told,
    with_models,
    with_time_limits,
    with_types_of,
    without_too_wide,
)
from jigsaw_opt.text import nearest, readable

_MOST_S = 9e9
"""The longest time, 285 years; times in traces are up to 2^53 - 1 microseconds."""
_PARTS: Mapping[str, Sequence[Any]] = {
    "workload": ((str, Workload), "text or a Workload"),
    "cluster": ((str, Cluster, Instance), "text, a Cluster or an Instance"),
    "policy": ((str, Policy), "text or a policy"),
    "performance": ((str, Performance, Callable), "text, a performance model, or what makes one for a cluster", ""),
    "contention": ((str, Contention, LinkSharing), "text or a model of contention", "exclusive"),
    "round_s": ((Real,), "a number", 60.0),
    "restart_s": ((Real,), "a number", 30.0),
    "draw_models": ((bool,), "true or false", False),
    "seed": ((Integral,), "a whole number", 0),
    "foreground_gpus": ((Integral, NoneType), "a whole number", None),
    "failures": ((str, Failures), "text or Failures", ""),
    "columns": ((str,), "text", ""),
    "too_wide": ((str,), "text", "refuse"),
    "speeds": ((str,), "text", ""),
}
"""Types of each part by name, these in words, and the default of what may be left out.

The order is that in which `summary.json` tells them.
"""
_DEFAULTS = {name: default[0] for name, (_, _, *default) in _PARTS.items() if default}


def read_setting(
    workload: str | Workload, cluster: str | Cluster | Instance, policy: str | Policy, **more: Any
) -> Setting:
    """Read everything that one simulation is of; raise what `read_settings` raises."""
    return read_settings([{"workload": workload, "cluster": cluster, "policy": policy, **more}])[0]


def read_settings(asked: Iterable[Mapping[str, Any]]) -> list[Setting]:
    """Read everything that several simulations are of.

    `asked`: for each simulation the arguments of `simulate` by name; ``workload``, ``cluster`` and ``policy`` among
    them.
    """
    problems = Problems()
    made: list[Setting] = []
    for own in asked:
        parts = {**_DEFAULTS, **own}
        _require_kinds(parts)
        found = Problems()
        setting = _read({name: parts[name] for name in _PARTS}, found)
        problems.include(found)
        if setting is not None:
            made.append(setting)
    problems.tell()
    return made


def changed(setting: Setting, **parts: Any) -> Setting:
    """Return a setting with other parts in place of those that need no workload or cluster read anew.

    `parts`: any of ``policy``, ``contention``, ``failures``, ``round_s`` and ``restart_s``, as `simulate` takes them,
    and ``time_limits``, as `with_time_limits` does.
    """
    cluster, made = setting.cluster, dict[str, Any]()
    for name, part in parts.items():
        if name == "contention":
            made[name] = contention_of(part, cluster)
        elif name == "failures":
            made[name] = failures_of(part, cluster, setting.seed)
        elif name in ("round_s", "restart_s"):
            made[f"{name.removesuffix('_s')}_us"] = _microseconds(name.removesuffix("_s"), part)
        elif name == "time_limits":
            made["workload"] = with_time_limits(setting.workload, part, setting.performance)
    words = {**setting.words, **{name: told(part) for name, part in parts.items()}}
    one = replace(setting, words=words, **made)
    return one.under(parts["policy"]) if "policy" in parts else one


def _require_kinds(parts: Mapping[str, object]) -> None:
    """Refuse parts that there are not, and those of another type, such as a path for a workload."""
    wrong = [
        Problem(name, f"no part {name!r} of a simulation; {nearest(name, sorted(_PARTS))}", code="unknown-option")
        for name in parts
        if name not in _PARTS
    ]
    wrong += [
        Problem(name, f"{name} is {told_kinds}, not {kind_of(parts[name])}", code="wrong-type")
        for name, (kinds, told_kinds, *_) in _PARTS.items()
        if not isinstance(parts[name], kinds)
    ]
    if wrong:
        raise UsageError.of(wrong)


def _read(asked: Mapping[str, Any], problems: Problems) -> Setting | None:
    """Return the setting, or None where there are problems."""
    with problems.of("policy"):
        choose(asked["policy"])
    with problems.of("round_s"):
        round_us = _microseconds("round", asked["round_s"])
    with problems.of("restart_s"):
        restart_us = _microseconds("restart", asked["restart_s"])
    with problems.of("seed"):
        seed = _seed(asked["seed"])
    with problems.of("too_wide"):
        require_choice(asked["too_wide"])
    with problems.of("foreground_gpus"):
        wide = _wide(asked["foreground_gpus"])
    # Without a cluster or a performance model the trace is still read, for what is wrong with it by itself.
    accept: Accept = anything
    cluster: Cluster | None = None
    with problems.of("cluster"):
        cluster, models = _cluster(asked["cluster"])
        accept = _accepting(asked, cluster, None)
        with problems.of("contention"):
            contention = contention_of(asked["contention"], cluster)
        with problems.of("failures"):
            failures = failures_of(asked["failures"], cluster, asked["seed"])
        with problems.of("performance"):
            performance = _performance(asked, cluster, models)
            accept = _accepting(asked, cluster, None if asked["draw_models"] else performance)
    if cluster is None:
        _find_wrong_words(asked, problems)
    given = asked["workload"]
    with problems.of(given if isinstance(given, str) else "workload", argument="workload"):
        workload = _trace(asked, accept) if isinstance(given, str) else _checked(asked, accept)
        if not problems and cluster is not None:
            workload = without_too_wide(with_types_of(workload, cluster), most_gpus_for(cluster))
            workload = _with_foreground(with_dependencies_told(workload), wide)
            workload, performance = _joined(asked, cluster, workload, performance)
            workload = with_durations_told(workload, cluster, getattr(performance, "type_speeds", None))
            words = {name: told(part) for name, part in asked.items()}
            setting = Setting(
                cluster, workload, performance, contention, round_us, restart_us, seed, failures, words=words
            )
            with problems.of("policy"):
                return setting.under(asked["policy"])
    return None


def _find_wrong_words(asked: Mapping[str, Any], problems: Problems) -> None:
    """Add what is wrong with words by themselves, where there is no cluster to read them for."""
    nothing = trusted(Cluster, servers=())
    with problems.of("contention"):
        contention_of(asked["contention"], nothing)
    with problems.of("failures"):
        if not isinstance(asked["failures"], str) or are_times(asked["failures"]):
            failures_of(asked["failures"], nothing, asked["seed"])
    with problems.of("performance"):
        if isinstance(asked["performance"], str) and asked["performance"]:
            require_kind(_kind_and_source(asked["performance"])[0])


def _seed(seed: int) -> int:
    if seed < 0:
        raise out_of_range("seed", f"the seed is at least 0, not {seed}")
    return seed


def _wide(gpus: int | None) -> int | None:
    if gpus is not None and gpus < 1:
        raise out_of_range("foreground_gpus", f"jobs in the foreground ask for at least 1 GPU, not {gpus}")
    return gpus


def _with_foreground(workload: Workload, gpus: int | None) -> Workload:
    """Return the workload with all jobs of at least so many GPUs in the foreground."""
    if gpus is None:
        return workload
    jobs = (replace(job, foreground=job.foreground or job.gpus >= gpus) for job in workload.jobs)
    return replace(workload, jobs=tuple(jobs))


def _microseconds(what: str, seconds: float) -> int:
    if not 0 <= seconds <= _MOST_S:
        bound = f"at most {_MOST_S:g}" if seconds > _MOST_S else "at least 0"
        raise out_of_range(f"{what}_s", f"the {what} is a number of seconds of {bound}, not {seconds}")
    return round(seconds * 1_000_000)


def _cluster(given: str | Cluster | Instance) -> tuple[Cluster, Mapping[str, Model] | None]:
    """Return the cluster, and the models of the instance that it comes from."""
    found = _cluster_in_words(given) if isinstance(given, str) else given
    cluster, models = (found, None) if isinstance(found, Cluster) else (found.cluster, found.models)
    require_count(cluster.gpu_count, str(told(given)))
    require_no_caps(cluster.power_caps, "a simulation keeps none")
    return cluster, models


def _cluster_in_words(text: str) -> Cluster | Instance:
    made = None if exists(text) else cluster_in_words(text)
    if made is not None:
        return made
    if begins_as_grid(text) and not exists(text):
        raise malformed("cluster", f"SERVERSxGPUS:TYPE is wanted, as in 2x4:a100 or 2x4:v100+1x8:a100, not {text!r}")
    try:
        return instance_from(text)
    except InvalidInputError as error:
        if exists(text):
            raise
        hint = "a cluster in words is SERVERSxGPUS:TYPE, as in 2x4:a100"
        raise InvalidInputError(replace(one, hint=one.hint or hint) for one in error.problems) from error


def _performance(asked: Mapping[str, Any], cluster: Cluster, models: Mapping[str, Model] | None) -> Performance | None:
    """Return the performance model; None where its figures stand in the trace, which is to be read first."""
    given = asked["performance"]
    performance: Performance | None = None
    if isinstance(given, str):
        kind, source = _kind_and_source(given)
        if models is not None and given in ("", Profiled.name):
            refuse_speeds(Profiled.name, asked["speeds"])
            performance = Profiled(cluster, models)
        elif kind not in FROM_TRACE:
            performance = performance_of(kind or "seconds", source, cluster, speeds=asked["speeds"])
    else:
        refuse_speeds(str(told(given)), asked["speeds"])
        made: object = given if isinstance(given, Performance) else given(cluster)
        if not isinstance(made, Performance):
            message = f"what makes a performance model for a cluster has made none: {kind_of(made)}"
            raise UsageError(message, code="wrong-type", path="performance")
        performance = made
        if getattr(performance, "cluster", cluster) != cluster:
            raise UsageError("the performance model is of another cluster", code="mismatch", path="performance")
    if asked["draw_models"] and not isinstance(performance, Profiled):
        raise UsageError(
            "models are drawn from those of an instance, and there are none: make one, "
            "as by `jigsaw new --cluster 4x8:a100 --job a:resnet50:1:1 -o FILE`, and give it as the cluster",
            code="missing-option",
        )
    return performance


def _kind_and_source(text: str) -> tuple[str, Path | None]:
    kind, _, source = text.partition(":")
    return kind, Path(source) if source else None


def _joined(
    asked: Mapping[str, Any], cluster: Cluster, workload: Workload, performance: Performance | None
) -> tuple[Workload, Performance]:
    """Return what each takes from the other: the model its figures from the trace, the jobs a drawn model."""
    if performance is None:
        performance = performance_of(*_kind_and_source(asked["performance"]), cluster, workload.stages, asked["speeds"])
    if asked["draw_models"] and isinstance(performance, Profiled):
        workload = with_models(workload, performance, sorted(performance.models), asked["seed"])
    return workload, performance


def _trace(asked: Mapping[str, Any], accept: Accept) -> Workload:
    text, columns = asked["workload"], columns_of(asked["columns"])
    name, colon, file = text.partition(":")
    if colon and name not in READERS and name.isalnum() and not exists(text):
        raise UsageError(
            f"no format {name!r} of traces; {nearest(name, sorted(READERS))}", code="unknown-value", path="workload"
        )
    if name not in READERS or not file:
        name, file = "csv", text
    data, source = read_file(workload_path(file)), readable(file)
    # What is wrong with columns that the caller names is said of them.
    with nullcontext() if columns else expecting(data, source, name):
        return read_trace(name, data, source, accept, columns)


def _checked(asked: Mapping[str, Any], accept: Accept) -> Workload:
    """Return a workload of the caller, or raise with everything that is wrong with its jobs."""
    if asked["columns"]:
        raise unsupported("columns", "names of columns are those of a file, and the workload is an object")
    workload: Workload = asked["workload"]
    found = [] if workload.jobs else [Problem("$.jobs", "is empty", code="empty")]
    names: set[str] = set()
    for k, job in enumerate(workload.jobs):
        name = f"job {job.name!r}" if is_name(job.name) else ""
        wrong = [replace(problem, path=f"$.jobs[{k}].{problem.path}", hint=name) for problem in job_problems(job)]
        found += wrong or [Problem(f"$.jobs[{k}]", message, code="unsupported") for message in accept(job)]
        if job.name in names:
            found.append(Problem(f"$.jobs[{k}].name", f"there is a job {job.name!r} already", code="duplicate-name"))
        names.add(job.name)
    if found:
        raise InvalidInputError(found)
    return workload


def _accepting(asked: Mapping[str, Any], cluster: Cluster, performance: Performance | None) -> Accept:
    """Return what is wrong with a job: its GPUs, its recorded times, or nothing that the performance model knows."""
    most, mixed = most_gpus_for(cluster), len({server.gpu_type for server in cluster.servers}) > 1
    recorded = asked["policy"] in (RECORDED, RECORDED.name)

    def problems(job: TraceJob) -> Sequence[str]:
        wide = why_too_wide(job, job.fewest, most(job), " of a type that it may have" if mixed else "")
        if wide is not None and asked["too_wide"] == "skip":
            return ()
        found = [*([] if wide is None else [wide]), *(record_problems(job) if recorded else ())]
        reason = None if performance is None else performance.unknown(job)
        if reason is not None:
            if isinstance(performance, Profiled) and job.duration_us is not None:
                drawn, given = argument("draw_models", True), argument("performance", "seconds")
                reason = f"has a duration and no model; {drawn} gives it one, {given} needs none"
                reason = f"job {job.name!r} {reason}"
            found.append(reason)
        return found

    return problems
