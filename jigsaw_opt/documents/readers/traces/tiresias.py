"""Traces of Tiresias (NSDI 2019): ``job_id,num_gpu,submit_time,iterations,model_name,duration,interval``, in seconds.

The duration is that on the GPUs asked for, so an iteration takes its share of it. Models are only names there: an
iteration becomes a second of the performance model ``seconds``, and the trace's own count of iterations is not used.
"""

from __future__ import annotations

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, headed
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU
from jigsaw_opt.problem.workload import TraceJob, Workload

_COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_tiresias(data: bytes | str, source: str = "trace.csv", accept: Accept = anything) -> Workload:
    """Read a trace of Tiresias."""
    return JobTable(data, source, _COLUMNS).workload(source, _job, accept)


def _job(row: Row) -> TraceJob | str:
    if row.is_zero("num_gpu"):
        return NO_GPU
    if row.is_missing("duration"):
        return NEVER_STARTED
    return TraceJob(
        row.text("job_id"),
        row.microseconds("submit_time"),
        row.shared("model_name"),
        row.integer("num_gpu"),
        row.integer("duration"),
    )
