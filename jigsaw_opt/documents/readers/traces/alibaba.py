"""Pods of Alibaba's GPU trace of 2023 (``openb_pod_list``): a pod a line, times in seconds.

``name``, ``num_gpu``, ``creation_time``, ``deletion_time`` and ``scheduled_time`` are used, and ``qos`` and
``gpu_spec``, the types of GPU that a pod may have, where they are there. A pod is a job that lasts
from its scheduling to its deletion. Pods without a GPU, never scheduled or never deleted are left out. A pod with a
part of a GPU (``gpu_milli``) takes a whole one, as plans share GPUs in time only.
"""

from __future__ import annotations

import re
from dataclasses import replace

from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, headed
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Tally, Unfinished
from jigsaw_opt.problem.workload import TraceJob, Workload

_COLUMNS = ("name", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
_MEMORY = re.compile(r"^(.*[0-9])m([0-9]+)$")
_WHOLE_GPU = 1000
"""Of ``gpu_milli``."""


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    return headed(head, _COLUMNS)


def read_alibaba(data: bytes | str, source: str = "pods.csv", accept: Accept = anything) -> Workload:
    """Read a list of pods of Alibaba."""
    table = JobTable(data, source, _COLUMNS)
    return table.workload(source, lambda row: _job(row, table.tally), accept)


def _job(row: Row, tally: Tally) -> TraceJob | Unfinished | str:
    gpus = row.integer("num_gpu", least=0)
    if row.good and gpus == 0:
        return NO_GPU
    waits = row.is_missing("scheduled_time")
    if row.good and waits and not row.is_missing("deletion_time"):
        return NEVER_STARTED
    if row.good and row.is_missing("deletion_time"):
        start_us, reason = (None, NEVER_STARTED) if waits else (row.microseconds("scheduled_time"), STILL_RUNNING)
        stated = {"start_us": start_us, "qos": row.stated("qos"), "gpu_types": _types(row)}
        return Unfinished.of(row.text("name"), row.microseconds("creation_time"), max(1, gpus), reason, **stated)
    start_us, end_us = row.microseconds("scheduled_time"), row.microseconds("deletion_time")
    if row.good and end_us < start_us:
        row.add(f"deletion_time is before scheduled_time: {row.text('scheduled_time')}", code="wrong-order")
    if gpus == 1 and row.good and row.has("gpu_milli") and not row.is_missing("gpu_milli"):
        part = row.integer("gpu_milli", least=0)
        if part < _WHOLE_GPU:
            tally.remark("pods with a part of a GPU, which count as one GPU each")
    lasted_us = max(0, end_us - start_us)
    job = TraceJob.lasting(row.text("name"), row.microseconds("creation_time"), max(1, gpus), lasted_us)
    return replace(job, start_us=start_us, end_us=end_us, qos=row.stated("qos"), gpu_types=_types(row))


def _types(row: Row) -> tuple[str, ...] | None:
    """Return the types that a pod may run on: of ``V100M16|V100M32``, those with their memory in GB."""
    names = (row.stated("gpu_spec") or "").split("|")
    return tuple(_MEMORY.sub(r"\1-\2gb", name.strip().lower()) for name in names if name.strip()) or None
