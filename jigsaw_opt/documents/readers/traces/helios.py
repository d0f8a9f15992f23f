"""Jobs of SenseTime's Helios clusters (SC 2021, ``cluster_log.csv``): a job a line under a header.

``job_id``, ``gpu_num``, ``submit_time``, ``start_time`` and ``duration`` are used, and where they are there ``user``,
``vc``, and ``end_time``; ``cpu_num``, ``node_num``, ``state`` and ``queue``, which is a time, are not. Durations are
seconds. The first submission is time 0. Jobs without a GPU and those that never started are left out.
``trace_seren.csv`` of Acme (NSDI 2024) has the same columns.
"""

from __future__ import annotations

from dataclasses import replace

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, from_first, headed
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU
from jigsaw_opt.problem.workload import TraceJob, Workload

_COLUMNS = ("job_id", "gpu_num", "submit_time", "start_time", "duration")


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_helios(data: bytes | str, source: str = "cluster_log.csv", accept: Accept = anything) -> Workload:
    """Read the log of a Helios cluster."""
    table = JobTable(data, source, _COLUMNS)
    return from_first(table.workload(source, _job, accept), table.zoned)


def _job(row: Row) -> TraceJob | str:
    gpus = row.integer("gpu_num", least=0)
    if row.good and gpus == 0:
        return NO_GPU
    if row.good and (row.is_missing("start_time") or row.is_missing("duration")):
        return NEVER_STARTED
    lasted_us, start_us = row.duration("duration"), row.moment("start_time")
    job = TraceJob.lasting(row.text("job_id"), row.moment("submit_time"), max(1, gpus), lasted_us)
    end_us = start_us + lasted_us if row.is_missing("end_time") else row.moment("end_time")
    return replace(job, start_us=start_us, end_us=end_us, user=row.stated("user"), queue=row.stated("vc"))
