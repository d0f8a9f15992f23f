"""The tasks of a measurement: every instance by every solver, seed and time limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from jigsaw_opt.documents import encode_instance, instance_sha256
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.sweeps.bench.trial import measure
from jigsaw_opt.sweeps.task import SweepTask

__all__ = ["Design", "Entry", "trials"]


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
    and relative gap that end a solve, or None.
    """

    solvers: Sequence[str]
    seeds: Sequence[int]
    time_limits: Sequence[float | None]
    work_limit: float | None = None
    gap: float | None = None
    threads: int = 1


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
        told = {**labels, "solver": solver, **_limit_labels(options)}
        yield SweepTask(_key(labels["instance_sha256"], solver, options), measure, (document, solver, options), told)


def _key(sha256: str, solver: str, options: Options) -> str:
    """Return what decides the result, as far as anything does: the instance's content, never its name."""
    limits = ((name, getattr(options, name)) for name in ("time_limit", "work_limit", "gap", "seed"))
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
