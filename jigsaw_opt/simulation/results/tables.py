"""The tables of a simulation: columns of its jobs and rounds, and jobs.csv, rounds.csv and summary.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

from jigsaw_opt.documents.csv_text import csv_text
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.simulation.engine.records import Loss, SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.results.metrics import SimulationSummary, completion_us, fairness, run_slowdown
from jigsaw_opt.text import json_text, printable

_JOBS = (
    "name",
    "model",
    "gpus",
    "submit_s",
    "start_s",
    "finish_s",
    "completion_s",
    "iterations_done",
    "gpu_s",
    "held_s",
    "restarts",
    "alone_s",
    "fairness",
    "foreground",
    "slowdown",
    "failure_stops",
    "lost_gpu_s",
    "servers",
    "held_gpus",
)
_ROUNDS = ("time_s", "active", "running", "waiting", "gpus", "moved", "held_gpu_s", "policy_us")
_DIGITS = {"iterations_done": 6, "fairness": 4, "slowdown": 4}
"""Decimals of the columns that are neither times nor counts."""


def jobs_of(setting: Setting, outcome: SimulationOutcome) -> DataTable:
    """Return the table of jobs: a row for each job that was submitted, in the order of the workload."""
    return _columns(_JOBS, _job_rows(setting, outcome))


def rounds_of(outcome: SimulationOutcome) -> DataTable:
    """Return a row a round in which the policy was asked; ``policy_us`` alone differs from run to run."""
    return _columns(_ROUNDS, _round_rows(outcome))


def jobs_csv(setting: Setting, outcome: SimulationOutcome) -> str:
    """Return the table of `jobs_of` as text; cells of what has not happened are empty."""
    return _csv(_JOBS, _job_rows(setting, outcome))


def rounds_csv(outcome: SimulationOutcome) -> str:
    """Return the table of `rounds_of` as text."""
    return _csv(_ROUNDS, _round_rows(outcome))


def summary_tree(setting: Setting, summary: SimulationSummary, hindrance: str = "") -> dict[str, object]:
    """Return the measures after what the simulation was of, and what its workload left out and decided, by reason.

    `hindrance`: what keeps a job from ever running, as in the outcome; empty for nothing.
    """
    read = {"left_out": _printable(setting.workload.left_out), "remarks": _printable(setting.workload.remarks)}
    return {**setting.words, **asdict(summary), "hindrance": printable(hindrance), **read}


def summary_json(setting: Setting, summary: SimulationSummary, hindrance: str = "") -> str:
    """Return `summary_tree` as the text of a JSON document."""
    return json_text(summary_tree(setting, summary, hindrance), indent=2, allow_nan=True) + "\n"


def _printable(counts: Mapping[str, int]) -> dict[str, int]:
    return {printable(reason): count for reason, count in counts.items()}


_Rows: TypeAlias = Iterator[tuple[object, ...]]
"""Rows with all times in microseconds."""


def _job_rows(setting: Setting, outcome: SimulationOutcome) -> _Rows:
    held, placed = outcome.held_us(), _placed(setting, outcome)
    for record in outcome.jobs:
        job = setting.workload.jobs[record.index]
        ended = record.finish_us is not None
        loss = outcome.losses.get(record.index, Loss())
        yield (
            job.name,
            job.model,
            job.gpus,
            job.submit_us,
            record.start_us,
            record.finish_us,
            completion_us(setting, record) if ended else None,
            record.done / UNITS,
            record.gpu_us,
            held[record.index],
            record.restarts,
            record.alone_us,
            fairness(setting, record) if ended else None,
            int(job.foreground),
            run_slowdown(setting, record) if ended else None,
            loss.stops,
            loss.gpu_us,
            *placed.get(record.index, ("", "")),
        )


def _placed(setting: Setting, outcome: SimulationOutcome) -> dict[int, tuple[str, str]]:
    """Return by number of a job its servers and its GPUs: those of a stint apart from the next by semicolons."""
    cluster, server_of = setting.cluster, setting.server_of
    names = [cluster.gpu_name(k, gpu - own.start) for k, own in enumerate(setting.for_policy.gpus_of) for gpu in own]
    found: dict[int, tuple[list[str], list[str]]] = {}
    for stint in outcome.stints:
        servers, gpus = found.setdefault(stint.job, ([], []))
        numbers = dict.fromkeys(server_of[gpu] for gpu in stint.on)
        servers.append(" ".join(cluster.servers[k].name for k in numbers))
        gpus.append(" ".join(names[gpu] for gpu in stint.on))
    return {index: ("; ".join(servers), "; ".join(gpus)) for index, (servers, gpus) in found.items()}


def _round_rows(outcome: SimulationOutcome) -> _Rows:
    for r in outcome.rounds:
        yield r.time_us, r.active, r.running, r.active - r.running, r.gpus, r.moved, r.held_gpu_us, r.policy_us


def _columns(names: Sequence[str], rows: _Rows) -> DataTable:
    """Return rows with times in seconds."""
    return DataTable(names, ([_in_seconds(*cell) for cell in zip(names, row, strict=True)] for row in rows))


def _in_seconds(name: str, value: object) -> object:
    return value / 1_000_000 if name.endswith("_s") and isinstance(value, int) else value


def _csv(names: Sequence[str], rows: _Rows) -> str:
    return csv_text(names, ([_cell(*cell) for cell in zip(names, row, strict=True)] for row in rows))


def _cell(name: str, value: object) -> object:
    """Return a value as text; seconds have all six digits, from integers, so that nothing is rounded."""
    if value is None:
        return ""
    if name.endswith("_s") and isinstance(value, int):
        return f"{value // 1_000_000}.{value % 1_000_000:06d}"
    return f"{value:.{_DIGITS[name]}f}" if name in _DIGITS else value
