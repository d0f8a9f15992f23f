"""Workloads of Pollux (OSDI 2021), which Sia uses too: ``name,time,application,num_replicas,batch_size``.

Times are seconds, batch sizes samples over all GPUs. How much work an application has is known to its profile only.
"""

from __future__ import annotations

from dataclasses import replace

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, headed
from jigsaw_opt.problem.workload import TraceJob, Workload

_MOST_ADAPTIVE_GPUS = 64
_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_pollux(data: bytes | str, source: str = "workload.csv", accept: Accept = anything) -> Workload:
    """Read a workload of Pollux or Sia."""
    return JobTable(data, source, _COLUMNS).workload(source, _job, accept)


def read_sia(data: bytes | str, source: str = "workload.csv", accept: Accept = anything) -> Workload:
    """Read the same with adaptive jobs: each runs on 1 to 64 GPUs, however many it asks for."""
    return JobTable(data, source, _COLUMNS).workload(source, _adaptive_job, accept)


def _adaptive_job(row: Row) -> TraceJob:
    return replace(_job(row), min_gpus=1, max_gpus=_MOST_ADAPTIVE_GPUS)


def _job(row: Row) -> TraceJob:
    return TraceJob(
        row.text("name"),
        row.microseconds("time"),
        row.shared("application"),
        row.integer("num_replicas"),
        batch_size=row.integer("batch_size"),
    )
