"""The tasks of a measurement: every instance by every solver, seed and time limit."""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from jigsaw_opt import __version__
from jigsaw_opt.documents import decode_instance, encode_instance, encode_plan, instance_sha256
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.certification import certify
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.sweeps.bench.known import beats_known
from jigsaw_opt.sweeps.task import SweepTask
from jigsaw_opt.system.hardware import hardware

_MAXRSS_PER_MIB = 1024 * 1024 if platform.system() == "Darwin" else 1024


def measure(document: bytes, solver: str, options: Options, certify_limit: float | None = None) -> dict[str, Any]:
    """Solve an instance and tell what came out and what it cost.

    The part of a row that only the solve can tell; where it raised, only ``error`` and the costs. Costs are those of
    the solve, without the search for a proof of its bound.

    `certify_limit`: seconds of that search; None for no search.
    """
    instance = decode_instance(document)
    started, cpu = time.monotonic(), _cpu_seconds()
    found = _solved(instance, solver, options)
    costs = {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(_cpu_seconds() - cpu, 3),
        "peak_rss_mib": round(_peak_rss_mib(), 1),
        "host": platform.node(),
        "host_cores": os.cpu_count(),
        "hardware": hardware(),
    }
    if not isinstance(found, Result):
        return {"error": str(found), **costs}
    result = found if certify_limit is None else certify(instance, found, certify_limit)
    return {**_outcome(result, options.time_limit), **_better_plan(result.plan), **costs}


def _solved(instance: Instance, solver: str, options: Options) -> Result | JigsawError:
    try:
        return solve(instance, solver, options)
    except JigsawError as error:
        return error


def _better_plan(plan: Plan | None) -> dict[str, Any]:
    """Return a plan that beats the best known value, as nobody might find it again; nothing of others."""
    if plan is None or not beats_known(plan.instance_sha256, plan.objective):
        return {}
    return {"plan": json.loads(encode_plan(plan))}


_OF_RESULT = ("objective", "bound", "bound_reason", "gap", "certified", "bound_by", "certified_bound", "verdict")


def _outcome(result: Result, limit: float | None) -> dict[str, Any]:
    return {
        "status": str(result.status),
        "stopped_by": str(result.stopped_by),
        **{name: getattr(result, name) for name in _OF_RESULT},
        "seconds_to_objective": _seconds_to(result),
        "primal_dual_integral": round(result.primal_dual_integral(limit), 6),
        "versions": {"python": platform.python_version(), "jigsaw-opt": __version__, **dict(result.versions)},
        "trajectory": [list(event) for event in result.trajectory],
    }


def _seconds_to(result: Result) -> float | None:
    """Return when the final objective was found, in the solver's clock; None without a plan or a progress stream."""
    if result.objective is None:
        return None
    reached = (e.seconds for e in result.trajectory if e.objective is not None and e.objective <= result.objective)
    return next(reached, None)


def _cpu_seconds() -> float:
    """Return user and system time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_rss_mib() -> float:
    """Return the most memory that this process held, or its largest child."""
    whos = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in whos) / _MAXRSS_PER_MIB


@dataclass(frozen=True, slots=True)
class Entry:
    """An instance that solvers are measured on.

    `group`: its set or family, over which the summary takes means.
    """

    group: str
    name: str
    instance: Instance


@dataclass(frozen=True, slots=True)
class Design:
    """The design of a measurement: all combinations of the first three, the rest the same for all.

    `solvers, seeds, time_limits`: names, seeds, and seconds (None for no limit). `work_limit, gap`: deterministic units
    and relative gap that end a solve, or None. `certify_limit`: seconds of the search for a proof of each bound; None
    for no search.
    """

    solvers: Sequence[str]
    seeds: Sequence[int]
    time_limits: Sequence[float | None]
    work_limit: float | None = None
    gap: float | None = None
    threads: int = 1
    certify_limit: float | None = None


def trials(entries: Iterable[Entry], design: Design) -> tuple[SweepTask, ...]:
    """Return a task for every combination, each once, instance by instance; the same input gives the same list."""
    tasks = {
        task.key: task
        for entry in entries
        for document, labels in [(encode_instance(entry.instance), _labels(entry))]
        for task in _of_instance(document, labels, design)
    }
    return tuple(tasks.values())


def _of_instance(document: bytes, labels: dict[str, Any], design: Design) -> Iterable[SweepTask]:
    for limit, solver, seed in product(design.time_limits, design.solvers, design.seeds):
        options = Options(limit, design.gap, work_limit=design.work_limit, seed=seed, threads=design.threads)
        told = {**labels, "solver": solver, **_limit_labels(options), "certify_limit": design.certify_limit}
        key = _key(labels["instance_sha256"], solver, options, design.certify_limit)
        yield SweepTask(key, measure, (document, solver, options, design.certify_limit), told)


def _key(sha256: str, solver: str, options: Options, certify_limit: float | None) -> str:
    """Return what decides the result, as far as anything does: the instance's content, never its name."""
    names = ("time_limit", "work_limit", "gap", "seed")
    limits = [*((name, getattr(options, name)) for name in names), ("certify_limit", certify_limit)]
    given = (f"{name}={value}" for name, value in limits if value is not None)
    return " ".join((sha256, solver, *given, f"workers={options.threads}"))


def _limit_labels(options: Options) -> dict[str, Any]:
    """Return the limits under the names of columns, where ``gap`` means the plan's."""
    return {
        "seed": options.seed,
        "time_limit": options.time_limit,
        "work_limit": options.work_limit,
        "gap_limit": options.gap,
        "threads": options.threads,
    }


def _labels(entry: Entry) -> dict[str, Any]:
    instance = entry.instance
    return {
        "set": entry.group,
        "instance": entry.name,
        "instance_sha256": instance_sha256(instance),
        "horizon": instance.horizon,
        "objective_kind": instance.objective,
        "gpus": instance.cluster.gpu_count,
        "workers": instance.workers,
    }
