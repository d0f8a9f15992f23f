"""Simulations as the tasks of a sweep: every workload by every policy and seed."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

from jigsaw_opt.documents.csv_text import csv_text
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.scheduling.share_rules import InvariantError
from jigsaw_opt.simulation.metrics import SimulationSummary, summarise
from jigsaw_opt.simulation.request import Prepared, SimulationRequest, prepare_all
from jigsaw_opt.sweeps.folder import SweepKind
from jigsaw_opt.sweeps.record import is_number
from jigsaw_opt.sweeps.task import SweepTask

__all__ = ["SIMULATIONS", "cells", "is_row", "measure", "rows_csv", "simulations", "task_of"]

_LABELS = ("workload", "policy", "seed")
_HIDDEN = ("key",)
_MEASURES = frozenset(field.name for field in fields(SimulationSummary))


def simulations(
    base: SimulationRequest,
    workloads: Sequence[str],
    policies: Sequence[str],
    seeds: Sequence[int],
) -> list[SweepTask]:
    """One task for every combination, each once; all that they name is read now.

    Parameters
    ----------
    base
        What is the same for all.
    workloads, policies, seeds
        What each combination has in place of that of `base`.

    Raises
    ------
    UsageError, InvalidInputError
        With everything that is wrong with any combination.
    """
    requests = [
        replace(base, workload=workload, policy=policy, seed=seed)
        for workload, policy, seed in product(workloads, policies, seeds)
    ]
    tasks = map(task_of, requests, prepare_all(requests))
    return list({task.key: task for task in tasks}.values())


def task_of(request: SimulationRequest, prepared: Prepared) -> SweepTask:
    """The task that simulates what a request asks for."""
    key = hashlib.sha256(prepared.inputs().encode()).hexdigest()
    return SweepTask(key, measure, (prepared,), request.about())


def measure(prepared: Prepared) -> dict[str, Any]:
    """Simulate to the end, and tell the measures and what it cost; where it raised, only ``error`` and the cost."""
    began, cpu = time.monotonic(), time.process_time()
    try:
        simulation = prepared.start()
        simulation.run()
        outcome: dict[str, Any] = asdict(summarise(prepared.setting, simulation.close()))
    except (JigsawError, InvariantError) as error:
        outcome = {"error": str(error)}
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    return {**outcome, "seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3), "host": platform.node()}


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether a row has an error, or all measures and each a number or None; whatever else is no text is one too."""
    error = row.get("error", 0)
    if error is not None:
        return isinstance(error, str)
    values = [value for value in row.values() if not isinstance(value, str)]
    return row.keys() >= _MEASURES and all(value is None or is_number(value) for value in values)


def cells(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each workload and policy the means over the seeds that gave a result, in the order of the rows."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["policy"]), []).append(row)
    return [_cell(workload, policy, group) for (workload, policy), group in groups.items()]


def rows_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows with what they are of first."""
    names = list(dict.fromkeys([*_LABELS, *(name for row in rows for name in row if name not in _HIDDEN)]))
    return csv_text(names, ([row.get(name) for name in names] for row in rows))


def _cell(workload: str, policy: str, group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    good = [row for row in group if row["error"] is None]
    measures = [name for name in good[0] if _is_measure(good[0][name]) and name != "seed"] if good else []
    means = {name: _mean([row[name] for row in good if _is_measure(row.get(name))]) for name in measures}
    return {"workload": workload, "policy": policy, "runs": len(group), "errors": len(group) - len(good), **means}


def _is_measure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


SIMULATIONS = SweepKind(is_row, rows_csv, cells)
"""What is kept of simulations."""
