"""Jobs of Microsoft's Philly cluster: ``timestamp,duration,num_gpus,gpu_time,cluster``.

Timestamps are local times without a zone, durations seconds. The first submission is time 0. The trace has no
models: an iteration becomes a second of the performance model ``seconds``. Jobs are named by the line they stand in.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_philly"]

_COLUMNS = ("timestamp", "duration", "num_gpus")
_MODEL = "seconds"
_EPOCH = datetime(1970, 1, 1)


def read_philly(data: bytes | str, source: str = "philly.csv", accept: Accept = anything) -> Workload:
    """Read a trace of Philly.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    workload = JobTable(data, source, _COLUMNS).workload(source, _job, accept)
    first_us = workload.jobs[0].submit_us
    jobs = (replace(job, submit_us=job.submit_us - first_us) for job in workload.jobs)
    return replace(workload, jobs=tuple(jobs))


def _job(row: Row) -> TraceJob:
    seconds = round(row.microseconds("duration") / 1_000_000)
    return TraceJob(f"line-{row.number}", _submit_us(row), _MODEL, row.integer("num_gpus"), max(1, seconds))


def _submit_us(row: Row) -> int:
    text = row.text("timestamp")
    try:
        return round((datetime.fromisoformat(text) - _EPOCH).total_seconds()) * 1_000_000
    except (ValueError, TypeError):  # TypeError: a time with a zone
        row.add(f"timestamp is a local date and time, not {text[:40]!r}")
        return 0
