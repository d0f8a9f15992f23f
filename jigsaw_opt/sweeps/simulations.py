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
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.scheduling.policy import Policy
from jigsaw_opt.scheduling.policy_at_work import InvariantError
from jigsaw_opt.simulation.engine.recorded import simulation_of
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.inputs.request import GivenWorkload, SimulationRequest, read_settings
from jigsaw_opt.simulation.results.metrics import SimulationSummary, summarise
from jigsaw_opt.sweeps.bench.summary import grouped
from jigsaw_opt.sweeps.folder import SweepKind
from jigsaw_opt.sweeps.job_times import are_job_times, job_times
from jigsaw_opt.sweeps.record import is_number
from jigsaw_opt.sweeps.task import SweepTask

_LABELS = ("workload", "policy", "seed")
_HIDDEN = ("key",)
_MEASURES = frozenset(field.name for field in fields(SimulationSummary))
_JOB_TIMES = "job_times"
_APART = ", "
"""Separates names of models in a row."""
_JOBS = "\n" + _JOB_TIMES
"""Added to the inputs of a simulation, so that its key differs where the times of its jobs are told."""


def simulations(
    base: SimulationRequest, workload: Iterable[GivenWorkload], policy: Iterable[str | Policy], seed: Iterable[int]
) -> list[SweepTask]:
    """Return one task for every combination, each once; all that they name is read now.

    `base`: all other parts.
    """
    combinations = product(workload, policy, seed)
    settings = read_settings(replace(base, workload=w, policy=p, seed=s) for w, p, s in combinations)
    return list({task.key: task for task in map(task_of, settings)}.values())


def task_of(setting: Setting, with_jobs: bool = False) -> SweepTask:
    """Return the task that simulates a setting.

    `with_jobs`: whether the row has the times of all jobs too.
    """
    inputs = setting.inputs() + (_JOBS if with_jobs else "")
    key = hashlib.sha256(inputs.encode()).hexdigest()
    return SweepTask(key, measure, (setting, with_jobs), setting.words)


def measure(setting: Setting, with_jobs: bool = False) -> dict[str, Any]:
    """Simulate to the end, and tell the measures and what it cost; where it raised, only ``error`` and the cost.

    The row of the simulation, without its labels.
    """
    began, cpu = time.monotonic(), time.process_time()
    try:
        simulation = simulation_of(setting)
        simulation.run()
        records = simulation.close()
        if records.hindrance:  # measures of the jobs that ended are not those of the workload
            raise JigsawError(records.hindrance)
        outcome: dict[str, Any] = asdict(summarise(simulation.setting, records))
        outcome["raw_models"] = _APART.join(records.raw_models)
        outcome |= {_JOB_TIMES: job_times(records)} if with_jobs else {}
    except (JigsawError, InvariantError) as error:
        outcome = {"error": str(error)}
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    return {**outcome, "seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3), "host": platform.node()}


def is_row(row: Mapping[str, Any]) -> bool:
    """Return whether a row has an error, or all measures, each a number or None.

    Times of jobs may be there, and are whole numbers then.
    """
    error = row.get("error", 0)
    if error is not None:
        return isinstance(error, str)
    if not are_job_times(row.get(_JOB_TIMES, [])):
        return False
    values = [value for name, value in row.items() if name != _JOB_TIMES and not isinstance(value, str)]
    return row.keys() >= _MEASURES and all(value is None or is_number(value) for value in values)


def raw_models_of(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of models that any of some simulations counted raw, sorted."""
    return tuple(sorted({name for row in rows for name in str(row.get("raw_models") or "").split(_APART) if name}))


def cells(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each workload and policy the means over the seeds that gave a result, in the order of the rows."""
    groups = grouped(rows, lambda row: (row["workload"], row["policy"]))
    return [_cell(workload, policy, group) for (workload, policy), group in groups.items()]


def rows_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows with what they are of first."""
    table = DataTable.of([{name: row[name] for name in row if name not in _HIDDEN} for row in rows], _LABELS)
    return csv_text(table.columns, table.rows)


def _cell(workload: str, policy: str, group: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    good = [row for row in group if row["error"] is None]
    measures = [name for name in good[0] if _is_measure(good[0][name]) and name != "seed"] if good else []
    means = {name: _mean([row[name] for row in good if _is_measure(row.get(name))]) for name in measures}
    return {"workload": workload, "policy": policy, "runs": len(group), "errors": len(group) - len(good), **means}


def _is_measure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


SIMULATIONS = SweepKind(is_row, rows_csv, cells, lambda rows: {"raw_models": raw_models_of(rows)})
"""What is kept of simulations."""
