"""The result of a simulation: its measures, and tables of its jobs and rounds, also as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.csv_text import csv_text, restored
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.table import JobTable, Row
from jigsaw_opt.errors import UsageError, unsupported, wrong_input
from jigsaw_opt.problem.data_table import DataTable
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.simulation.engine.records import JobRecord, Loss, SimulationOutcome
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.results.metrics import (
    SimulationSummary,
    completion_us,
    fairness,
    run_slowdown,
    summarise,
    with_efficiency,
)
from jigsaw_opt.text import html_table, json_text, named, printable, readable, suggestion

_ROUNDS = ("time_s", "active", "running", "waiting", "gpus", "moved", "held_gpu_s", "policy_us")
_DIGITS = {"iterations_done": 6, "fairness": 4, "slowdown": 4}
"""Decimals of the columns that are neither times nor counts."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation.

    Parameters
    ----------
    setting
        What was simulated, as it was read.
    summary
        Its measures.
    outcome
        Its records: of jobs, of rounds, and of who held how many GPUs when.
    finished
        Whether every job has ended; if not, it was cancelled, came to its end time, or jobs wait for ever for what
        `SimulationOutcome.hindrance` says.
    resumable
        Whether its folder keeps a snapshot to go on from, as it was cancelled.
    """

    setting: Setting
    summary: SimulationSummary
    outcome: SimulationOutcome
    finished: bool
    resumable: bool = False

    @property
    def jobs(self) -> DataTable:
        """A row a job that was submitted, with the columns of ``jobs.csv``; None stands for what has not happened."""
        return _columns(_JOBS, _job_rows(self.setting, self.outcome))

    @property
    def rounds(self) -> DataTable:
        """A row a round in which the policy was asked, as ``rounds.csv``; only ``policy_us`` differs by run."""
        return _columns(_ROUNDS, _round_rows(self.outcome))

    def __repr__(self) -> str:
        jobs, mean = self.summary.jobs, self.summary.mean_completion_h
        shown = "None" if mean is None else f"{mean:.4g}"
        return f"SimulationResult(jobs={jobs}, mean_completion_h={shown}, finished={self.finished})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the measures that are known, by name."""
        measures = {name: value for name, value in asdict(self.summary).items() if value is not None}
        counted = self.setting.efficiency
        return html_table(
            {
                with_efficiency(name, counted, self.outcome.raw_models): f"{value:.4g}"
                if isinstance(value, float)
                else value
                for name, value in measures.items()
            }
        )


def result_of(simulation: Simulation, resumable: bool = False) -> SimulationResult:
    """Return what a simulation has come to; it cannot go on afterwards."""
    finished, outcome = simulation.finished, simulation.close()
    return SimulationResult(simulation.setting, summarise(simulation.setting, outcome), outcome, finished, resumable)


def jobs_csv(setting: Setting, outcome: SimulationOutcome) -> str:
    """Return the table of jobs as text; cells of what has not happened are empty."""
    return _csv(_JOBS, _job_rows(setting, outcome))


def rounds_csv(outcome: SimulationOutcome) -> str:
    """Return the table of rounds as text."""
    return _csv(_ROUNDS, _round_rows(outcome))


def summary_tree(setting: Setting, summary: SimulationSummary, outcome: SimulationOutcome) -> dict[str, object]:
    """Return the measures after what the simulation was of, what kept jobs from running and which were counted raw.

    What its workload left out and decided is told too, by reason.
    """
    read = {"left_out": _printable(setting.workload.left_out), "remarks": _printable(setting.workload.remarks)}
    kept, raw = printable(outcome.hindrance), [printable(name) for name in outcome.raw_models]
    words = {**setting.words, "efficiency": setting.efficiency}
    return {**words, **asdict(summary), "hindrance": kept, "raw_models": raw, **read}


def summary_json(setting: Setting, summary: SimulationSummary, outcome: SimulationOutcome) -> str:
    """Return `summary_tree` as the text of a JSON document."""
    return json_text(summary_tree(setting, summary, outcome), indent=2, allow_nan=True) + "\n"


def _printable(counts: Mapping[str, int]) -> dict[str, int]:
    return {printable(reason): count for reason, count in counts.items()}


_Rows: TypeAlias = Iterator[tuple[object, ...]]
"""Rows with all times in microseconds."""


class _JobRow(NamedTuple):
    """All that the columns of a job are made of."""

    setting: Setting
    record: JobRecord
    job: TraceJob
    loss: Loss
    held_us: int
    placed: tuple[str, str]
    partial: bool

    def of_ended(self, measure: Callable[[Setting, JobRecord], object]) -> object:
        """Return a measure of a job that has ended, and None of others."""
        return None if self.record.finish_us is None else measure(self.setting, self.record)


_JOBS: Mapping[str, Callable[[_JobRow], object]] = {
    "name": lambda row: row.job.name,
    "model": lambda row: row.job.model,
    "gpus": lambda row: row.job.gpus,
    "submit_s": lambda row: row.job.submit_us,
    "start_s": lambda row: row.record.start_us,
    "finish_s": lambda row: row.record.finish_us,
    "completion_s": lambda row: row.of_ended(completion_us),
    "iterations_done": lambda row: row.record.done / UNITS,
    "gpu_s": lambda row: row.record.gpu_us,
    "held_s": lambda row: row.held_us,
    "restarts": lambda row: row.record.restarts,
    "alone_s": lambda row: row.record.alone_us,
    "fairness": lambda row: row.of_ended(fairness),
    "foreground": lambda row: int(row.job.foreground),
    "slowdown": lambda row: row.of_ended(run_slowdown),
    "failure_stops": lambda row: row.loss.stops,
    "lost_gpu_s": lambda row: row.loss.gpu_us,
    "partial_depth": lambda row: int(row.partial),
    "servers": lambda row: row.placed[0],
    "held_gpus": lambda row: row.placed[1],
}
"""Columns of the table of jobs; times are in microseconds."""


def _job_rows(setting: Setting, outcome: SimulationOutcome) -> _Rows:
    held, placed, partial = outcome.held_us(), _placed(setting, outcome), frozenset(outcome.partial_jobs)
    for record in outcome.jobs:
        k = record.index
        job, loss = setting.workload.jobs[k], outcome.losses.get(k, Loss())
        row = _JobRow(setting, record, job, loss, held[k], placed.get(k, ("", "")), k in partial)
        yield tuple(column(row) for column in _JOBS.values())


def _placed(setting: Setting, outcome: SimulationOutcome) -> dict[int, tuple[str, str]]:
    """Return by number of a job its servers and its GPUs: those of a stint apart from the next by semicolons."""
    cluster, server_of = setting.cluster, setting.server_of
    found: dict[int, tuple[list[str], list[str]]] = {}
    for stint in outcome.stints:
        servers, gpus = found.setdefault(stint.job, ([], []))
        numbers = dict.fromkeys(server_of[gpu] for gpu in stint.on)
        servers.append(" ".join(cluster.servers[k].name for k in numbers))
        gpus.append(" ".join(cluster.gpus.names[gpu] for gpu in stint.on))
    return {index: ("; ".join(servers), "; ".join(gpus)) for index, (servers, gpus) in found.items()}


def _round_rows(outcome: SimulationOutcome) -> _Rows:
    for r in outcome.rounds:
        yield r.time_us, r.active, r.running, r.active - r.running, r.gpus, r.moved, r.held_gpu_us, r.policy_us


def _columns(names: Iterable[str], rows: _Rows) -> DataTable:
    """Return rows with times in seconds."""
    return DataTable(names, ([_in_seconds(*cell) for cell in zip(names, row, strict=True)] for row in rows))


def _in_seconds(name: str, value: object) -> object:
    return value / 1_000_000 if name.endswith("_s") and isinstance(value, int) else value


def _csv(names: Iterable[str], rows: _Rows) -> str:
    return csv_text(tuple(names), ([_cell(*cell) for cell in zip(names, row, strict=True)] for row in rows))


def _cell(name: str, value: object) -> object:
    """Return a value as text; seconds have all six digits, from integers, so that nothing is rounded."""
    if value is None:
        return ""
    if name.endswith("_s") and isinstance(value, int):
        return f"{value // 1_000_000}.{value % 1_000_000:06d}"
    return f"{value:.{_DIGITS[name]}f}" if name in _DIGITS else value


_REQUIRED = ("name", "submit_s", "start_s", "finish_s", "held_s", "alone_s", "restarts")


@dataclass(frozen=True, slots=True)
class JobTime:
    """The time of a job up to its end or that of the simulation, in microseconds.

    `queued_us`: microseconds from its submission to its first start. `paused_us`: in which it held none between its
    first start and its end. `alone_us`: in which all of its work is done alone on the GPUs that it asks for.
    `restarts`: how often it started on other GPUs, its first start aside.
    """

    job: str
    queued_us: int
    running_us: int
    paused_us: int
    alone_us: int
    restarts: int

    @property
    def completion_us(self) -> int:
        """From its submission to its end: the sum of the three."""
        return self.queued_us + self.running_us + self.paused_us

    @property
    def waiting_us(self) -> int:
        """All time without GPUs."""
        return self.queued_us + self.paused_us

    @property
    def slower_us(self) -> int:
        """By how much it ran longer than alone on its GPUs; below 0 where it had more or faster ones."""
        return self.running_us - self.alone_us


def times_of(setting: Setting, outcome: SimulationOutcome) -> list[JobTime]:
    """Return the times of each job of a simulation, in the order of the records."""
    held, found = outcome.held_us(), list[JobTime]()
    for record in outcome.jobs:
        job, ran_us = setting.workload.jobs[record.index], held[record.index]
        end_us = outcome.end_us if record.finish_us is None else record.finish_us
        start_us = end_us if record.start_us is None else record.start_us
        times = start_us - job.submit_us, ran_us, end_us - start_us - ran_us
        found.append(JobTime(job.name, *times, record.alone_us, record.restarts))
    return found


def job_times(folder: Path, job: str | None = None) -> list[JobTime]:
    """Return the times of all jobs of a simulation that ended, in the order of the workload.

    `job`: name of the only job of interest; None for all.
    """
    table = _table(folder)
    found = [_time(row) for row in table if row.optional_text("finish_s")]
    table.lines.raise_if_any()
    if job is None:
        return found
    names = [time.job for time in found]
    if job in names:
        return [found[names.index(job)]]
    if any(restored(row.text("name")) == job for row in _table(folder)):
        summary = parsed(read_text(folder / "summary.json"), str(folder / "summary.json"), lambda _tree, _report: None)
        why = summary.get("hindrance")
        because = f": {readable(why)}" if isinstance(why, str) and why else ", where the simulation was stopped"
        raise unsupported("jobs", f"job {job!r} has not ended in {folder}{because}")
    hint = suggestion(job, names) or f"ended: {named(names)}"
    raise UsageError(f"no job {job!r} has ended in {folder}", hint, code="unknown-name", path="jobs")


def _table(folder: Path) -> JobTable:
    path = folder / "jobs.csv"
    if not exists(path):
        told, hint = f"holds no simulation: it has no {path.name}", "that of `jigsaw simulate` without --sweep does"
        raise wrong_input(str(folder), told, hint, code="unreadable")
    return JobTable(read_text(path), str(path), _REQUIRED, strict=True)


def times_as_json(times: Sequence[JobTime]) -> dict[str, Any]:
    """Return the times of all jobs as values of JSON, in microseconds."""
    return {
        "jobs": [asdict(time) | {"completion_us": time.completion_us, "slower_us": time.slower_us} for time in times]
    }


def _time(row: Row) -> JobTime:
    submit, start, finish = (row.microseconds(column) for column in ("submit_s", "start_s", "finish_s"))
    held, alone = row.microseconds("held_s"), row.microseconds("alone_s")
    if not submit <= start <= start + held <= finish:
        row.add("the times of this job cannot be", code="contradiction")
    restarts = row.integer("restarts", 0)
    return JobTime(restored(row.text("name")), start - submit, held, finish - start - held, alone, restarts)
