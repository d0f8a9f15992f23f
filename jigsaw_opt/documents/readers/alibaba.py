"""Pods of Alibaba's GPU trace of 2023 (``openb_pod_list``): a pod a line, times in seconds.

``name``, ``num_gpu``, ``creation_time``, ``deletion_time`` and ``scheduled_time`` are used. A pod is a job that lasts
from its scheduling to its deletion. Pods without a GPU and pods that were never scheduled are left out. A pod with a
part of a GPU (``gpu_milli``) takes a whole one, as plans share GPUs in time only. An iteration becomes a second of the
performance model ``seconds``.
"""

from __future__ import annotations

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, headed
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["read_alibaba", "resembles"]

_COLUMNS = ("name", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
_MODEL = "seconds"


def resembles(head: str) -> int:
    """How many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_alibaba(data: bytes | str, source: str = "pods.csv", accept: Accept = anything) -> Workload:
    """Read a list of pods of Alibaba.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    return JobTable(data, source, _COLUMNS).workload(source, _job, accept)


def _job(row: Row) -> TraceJob | None:
    gpus, scheduled = row.integer("num_gpu", least=0), row.optional("scheduled_time", least=0)
    if row.good and (gpus == 0 or scheduled is None):
        return None
    seconds = row.integer("deletion_time", least=0) - (scheduled or 0)
    if row.good and seconds < 0:
        row.add(f"deletion_time is before scheduled_time: {scheduled}")
    return TraceJob(row.text("name"), row.microseconds("creation_time"), _MODEL, max(1, gpus), max(1, seconds))
