"""Where the time of the jobs of a simulation went, from its ``jobs.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jigsaw_opt.documents import exists
from jigsaw_opt.documents.csv_text import restored
from jigsaw_opt.documents.file_bytes import read_text
from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.table import JobTable, Row
from jigsaw_opt.errors import UsageError, unsupported, wrong_input
from jigsaw_opt.text import named, readable, suggestion

_REQUIRED = ("name", "submit_s", "start_s", "finish_s", "held_s", "alone_s", "restarts")


@dataclass(frozen=True, slots=True)
class JobTime:
    """The time of a job that ended, in microseconds.

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
    def slower_us(self) -> int:
        """By how much it ran longer than alone on its GPUs; below 0 where it had more or faster ones."""
        return self.running_us - self.alone_us


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
