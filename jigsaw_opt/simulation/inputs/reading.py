"""Reads what a simulation is of, part by part, so that everything that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.errors import Problems, argument
from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.rules.keyed import trusted
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.performance import Performance
from jigsaw_opt.scheduling.performance.kinds import performance_for
from jigsaw_opt.scheduling.performance.profiled import Profiled
from jigsaw_opt.scheduling.policy import choose
from jigsaw_opt.simulation.engine.outages import failures_of
from jigsaw_opt.simulation.engine.recorded import record_problems
from jigsaw_opt.simulation.engine.setting import Setting, told
from jigsaw_opt.simulation.inputs.cluster_files import read_cluster
from jigsaw_opt.simulation.inputs.contention import contention_of
from jigsaw_opt.simulation.inputs.request import SimulationRequest
from jigsaw_opt.simulation.inputs.workload_changes import fitted, most_gpus_for, read_workload, why_too_wide


def read_setting(asked: SimulationRequest) -> Setting:
    """Read everything that one simulation is of; raise one error with everything that is wrong."""
    return read_settings([asked])[0]


def read_settings(asked: Iterable[SimulationRequest]) -> list[Setting]:
    """Read everything that several simulations are of, once what differs by the policy alone."""
    problems, made, read = Problems(), list[Setting](), dict[tuple[object, ...], Setting | None]()
    for own in [*asked]:
        key = own.but_policy
        if key not in read:
            found = Problems()
            read[key] = _read(own, found)
            problems.include(found)
        setting = read[key]
        with problems.of("policy"):
            if setting is None:
                choose(own.policy)
            else:
                made.append(setting.under(own.policy))
    problems.tell()
    return made


def changed(setting: Setting, **parts: Any) -> Setting:
    """Return a setting with other parts in place of those that need no workload or cluster read anew.

    `parts`: any of ``policy``, ``contention``, ``failures``, ``round_s`` and ``restart_s``, as `simulate` takes them.
    """
    cluster, made = setting.cluster, dict[str, Any]()
    for name, part in parts.items():
        if name == "contention":
            made[name] = contention_of(part, cluster)
        elif name == "failures":
            made[name] = failures_of(part, cluster, setting.seed)
        elif name in ("round_s", "restart_s"):
            made[f"{name.removesuffix('_s')}_us"] = _microseconds(part)
    words = {**setting.words, **{name: told(part) for name, part in parts.items()}}
    one = replace(setting, words=words, **made)
    return one.under(parts["policy"]) if "policy" in parts else one


def _acceptance(asked: SimulationRequest, cluster: Cluster, performance: Performance | None) -> Accept:
    """Return what is wrong with a job: its GPUs, its recorded times, or nothing that the performance model knows.

    `performance`: None where it is not known yet.
    """
    most, mixed = most_gpus_for(cluster), len({server.gpu_type for server in cluster.servers}) > 1

    def problems(job: TraceJob) -> Sequence[str]:
        wide = why_too_wide(job, job.fewest, most(job), " of a type that it may have" if mixed else "")
        if wide is not None and asked.too_wide == "skip":
            return ()
        found = [*([] if wide is None else [wide]), *(record_problems(job) if asked.is_record else ())]
        reason = None if performance is None or asked.draw_models else performance.unknown(job)
        if reason is not None:
            if isinstance(performance, Profiled) and job.duration_us is not None:
                drawn, given = argument("draw_models", True), argument("performance", "seconds")
                reason = f"has a duration and no model; {drawn} gives it one, {given} needs none"
                reason = f"job {job.name!r} {reason}"
            found.append(reason)
        return found

    return problems


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _read(asked: SimulationRequest, problems: Problems) -> Setting | None:
    """Return the setting before anybody decides, or None where there are problems."""
    # Without a cluster or a performance model everything else is still read, for what is wrong with it by itself.
    cluster, models, performance = trusted(Cluster, servers=()), None, None
    with problems.of("cluster"):
        cluster, models = read_cluster(asked.cluster)
    with problems.of("contention"):
        contention = contention_of(asked.contention, cluster)
    with problems.of("failures"):
        failures = failures_of(asked.failures, cluster, asked.seed)
    with problems.of("performance"):
        performance = performance_for(asked.performance, cluster, models, asked.speeds, asked.draw_models)
    accept = _acceptance(asked, cluster, performance) if cluster.servers else anything
    given = asked.workload
    with problems.of(given if isinstance(given, str) else "workload", argument="workload"):
        workload = read_workload(given, asked.columns, accept)
        if not problems:
            stages = workload.stages
            known = performance or performance_for(asked.performance, cluster, models, asked.speeds, stages=stages)
            assert known is not None  # as the trace is read
            workload = fitted(
                workload, cluster, known, asked.foreground_gpus, asked.seed if asked.draw_models else None
            )
            times = _microseconds(asked.round_s), _microseconds(asked.restart_s)
            return Setting(cluster, workload, known, contention, *times, asked.seed, failures, words=asked.words)
    return None
