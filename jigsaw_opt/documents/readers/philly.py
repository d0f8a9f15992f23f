"""Jobs of Microsoft's Philly cluster: ``timestamp,duration,num_gpus,gpu_time,cluster``.

Timestamps are local times without a zone, durations seconds. The first submission is time 0. The trace has no
models: an iteration becomes a second of the performance model ``seconds``. Jobs are named by the line they stand in.
"""

from __future__ import annotations

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, from_first, headed
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_philly", "resembles"]

_COLUMNS = ("timestamp", "duration", "num_gpus")
_MODEL = "seconds"


def resembles(head: str) -> int:
    """How many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_philly(data: bytes | str, source: str = "philly.csv", accept: Accept = anything) -> Workload:
    """Read a trace of Philly.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    return from_first(JobTable(data, source, _COLUMNS).workload(source, _job, accept))


def _job(row: Row) -> TraceJob:
    seconds = round(row.microseconds("duration") / 1_000_000)
    return TraceJob(f"line-{row.number}", row.moment("timestamp"), _MODEL, row.integer("num_gpus"), max(1, seconds))
