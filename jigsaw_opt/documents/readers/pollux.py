"""Workloads of Pollux (OSDI 2021), which Sia uses too: ``name,time,application,num_replicas,batch_size``.

Times are seconds, batch sizes samples over all GPUs. How much work an application has is known to its profile only.
"""

from __future__ import annotations

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_pollux"]

_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def read_pollux(data: bytes | str, source: str = "workload.csv", accept: Accept = anything) -> Workload:
    """Read a workload of Pollux or Sia.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    return JobTable(data, source, _COLUMNS).workload(source, _job, accept)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        row.text("name"),
        row.microseconds("time"),
        row.text("application"),
        row.integer("num_replicas"),
        batch_size=row.integer("batch_size"),
    )
