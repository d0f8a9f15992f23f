"""Traces of ElasticFlow (ASPLOS 2023) and of the clusters that it published: one job a line, times in seconds.

``submit_time`` or ``submission_time``, ``num_gpu`` and ``duration`` (on the GPUs asked for) are used, and
``model_name`` where it is there; deadlines and batch sizes are not. An iteration becomes a second of the performance
model ``seconds``.
"""

from __future__ import annotations

from functools import partial

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, headed
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU
from jigsaw_opt.problem.workload import TraceJob, Workload

_COLUMNS = ("job_id", "num_gpu", "duration")
_SUBMIT = ("submit_time", "submission_time")
_MODEL = "seconds"


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return max(headed(head, (*_COLUMNS, submit)) for submit in _SUBMIT)


def read_elasticflow(data: bytes | str, source: str = "trace.csv", accept: Accept = anything) -> Workload:
    """Read a trace of ElasticFlow.

    `data`: the content of the file; text, or bytes in UTF-8. `accept`: returns what is wrong with a job that has a
    model, one text a problem.
    """
    table = JobTable(data, source, _COLUMNS)
    submit = [name for name in _SUBMIT if table.has(name)]
    if len(submit) != 1:
        table.lines.add(
            1, f"{'two columns' if submit else 'no column'} 'submit_time' or 'submission_time'", code="missing-field"
        )
        table.lines.raise_if_any()
    return table.workload(source, partial(_job, submit=submit[0], named=table.has("model_name")), accept)


def _job(row: Row, submit: str, named: bool) -> TraceJob | str:
    if row.is_zero("num_gpu"):
        return NO_GPU
    if row.is_missing("duration"):
        return NEVER_STARTED
    return TraceJob(
        row.text("job_id"),
        row.microseconds(submit),
        row.shared("model_name") if named else _MODEL,
        row.integer("num_gpu"),
        row.integer("duration"),
    )
