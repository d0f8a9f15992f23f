"""Jobs of Slurm's accounting: ``sacct -X -P -o JobID,Submit,Start,End,AllocTRES``, cells between bars under a header.

More columns do no harm, and ``ReqTRES`` stands in where ``AllocTRES`` is empty. A job asks for its ``gres/gpu`` and
lasts from ``Start`` to ``End``. Steps, jobs without a GPU, and those that never started or have not ended are left
out. Times are local; the first submission is time 0. An iteration becomes a second of the performance model
``seconds``.
"""

from __future__ import annotations

import re

from jigsaw_opt.documents.readers.table import NO_TIME, Accept, JobTable, Row, anything, from_first, headed
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_slurm", "resembles"]

_COLUMNS = ("JobID", "Submit", "Start", "End", "AllocTRES")
_MODEL = "seconds"
_GPUS = re.compile(r"gres/gpu=([0-9]{1,7})")
_TYPED_GPUS = re.compile(r"gres/gpu:[^=,]+=([0-9]{1,7})")


def resembles(head: str) -> int:
    """How many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS, "|")


def read_slurm(data: bytes | str, source: str = "sacct.txt", accept: Accept = anything) -> Workload:
    """Read what ``sacct -P`` prints.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    return from_first(JobTable(data, source, _COLUMNS, "|").workload(source, _job, accept))


def _job(row: Row) -> TraceJob | None:
    name, gpus = row.text("JobID"), _gpus(row)
    times = [row.optional_text(column) for column in ("Start", "End")]
    if "." in name or gpus == 0 or not NO_TIME.isdisjoint(times):
        return None
    seconds = (row.moment("End") - row.moment("Start")) // 1_000_000
    if row.good and seconds < 0:
        row.add("End is before Start")
    return TraceJob(name, row.moment("Submit"), _MODEL, gpus, max(1, seconds))


def _gpus(row: Row) -> int:
    """The GPUs of all types; only those by type where the sum is not given."""
    resources = row.optional_text("AllocTRES")
    if not resources and row.has("ReqTRES"):
        resources = row.optional_text("ReqTRES")
    found = _GPUS.search(resources)
    return int(found[1]) if found else sum(map(int, _TYPED_GPUS.findall(resources)))
