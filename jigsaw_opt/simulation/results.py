"""The tables of a simulation as text: jobs.csv, rounds.csv and summary.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from jigsaw_opt.documents.csv_text import csv_text
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.simulation.metrics import SimulationSummary, completion_us, fairness, run_slowdown
from jigsaw_opt.simulation.records import JobRecord, Loss, SimulationOutcome
from jigsaw_opt.simulation.setting import Setting
from jigsaw_opt.text import json_text, printable

__all__ = ["jobs_csv", "rounds_csv", "summary_json", "summary_tree"]

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
)
_ROUNDS = ("time_s", "active", "running", "waiting", "gpus", "moved", "held_gpu_s", "policy_us")


def jobs_csv(setting: Setting, outcome: SimulationOutcome) -> str:
    """A line a job that was submitted, in the order of the workload; cells of what has not happened are empty."""
    held: Counter[int] = Counter()
    for stint in outcome.stints:
        held[stint.job] += stint.end_us - stint.start_us
    return csv_text(_JOBS, (_job_cells(setting, it, held[it.index], outcome.losses) for it in outcome.jobs))


def rounds_csv(outcome: SimulationOutcome) -> str:
    """A line a round in which the policy was asked; ``policy_us`` alone differs from run to run."""
    return csv_text(
        _ROUNDS,
        (
            (
                _seconds(r.time_us),
                r.active,
                r.running,
                r.active - r.running,
                r.gpus,
                r.moved,
                _seconds(r.held_gpu_us),
                r.policy_us,
            )
            for r in outcome.rounds
        ),
    )


def summary_tree(setting: Setting, summary: SimulationSummary, about: Mapping[str, object]) -> dict[str, object]:
    """Return the measures after what the simulation was of, and what its workload left out and decided, by reason."""
    read = {"left_out": _printable(setting.workload.left_out), "remarks": _printable(setting.workload.remarks)}
    return {**about, **asdict(summary), **read}


def summary_json(setting: Setting, summary: SimulationSummary, about: Mapping[str, object]) -> str:
    """Return `summary_tree` as text."""
    return json_text(summary_tree(setting, summary, about), indent=2, allow_nan=True) + "\n"


def _printable(counts: Mapping[str, int]) -> dict[str, int]:
    return {printable(reason): count for reason, count in counts.items()}


def _job_cells(setting: Setting, record: JobRecord, held_us: int, losses: Mapping[int, Loss]) -> tuple[object, ...]:
    job = setting.workload.jobs[record.index]
    ended = record.finish_us is not None
    loss = losses.get(record.index, Loss())
    return (
        job.name,
        job.model,
        job.gpus,
        _seconds(job.submit_us),
        _seconds(record.start_us),
        _seconds(record.finish_us),
        _seconds(completion_us(setting, record)) if ended else "",
        f"{record.done / UNITS:.6f}",
        _seconds(record.gpu_us),
        _seconds(held_us),
        record.restarts,
        _seconds(record.alone_us),
        f"{fairness(setting, record):.4f}" if ended else "",
        int(job.foreground),
        f"{run_slowdown(setting, record):.4f}" if ended else "",
        loss.stops,
        _seconds(loss.gpu_us + loss.still_gpu_us),
    )


def _seconds(time_us: int | None) -> str:
    """Seconds with all six digits, from integers, so that nothing is rounded."""
    return "" if time_us is None else f"{time_us // 1_000_000}.{time_us % 1_000_000:06d}"
