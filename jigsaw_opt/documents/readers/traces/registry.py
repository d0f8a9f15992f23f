"""The formats of traces by name, each reader imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from jigsaw_opt.documents.file_bytes import unpacked
from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import Workload
from jigsaw_opt.text import nearest, readable

READERS = {
    "alibaba": "jigsaw_opt.documents.readers.traces.alibaba:read_alibaba",
    "csv": "jigsaw_opt.documents.readers.traces.workload_csv:decode_workload",
    "elasticflow": "jigsaw_opt.documents.readers.traces.elasticflow:read_elasticflow",
    "helios": "jigsaw_opt.documents.readers.traces.helios:read_helios",
    "itp": "jigsaw_opt.documents.readers.traces.elasticflow:read_elasticflow",
    "kubernetes": "jigsaw_opt.documents.readers.kubernetes.reading:read_kubernetes",
    "muri": "jigsaw_opt.documents.readers.traces.muri:read_muri",
    "gavel": "jigsaw_opt.documents.readers.traces.gavel:read_gavel",
    "philly": "jigsaw_opt.documents.readers.traces.philly:read_philly",
    "pollux": "jigsaw_opt.documents.readers.traces.pollux:read_pollux",
    "sia": "jigsaw_opt.documents.readers.traces.pollux:read_sia",
    "slurm": "jigsaw_opt.documents.readers.slurm.reading:read_slurm",
    "tiresias": "jigsaw_opt.documents.readers.traces.tiresias:read_tiresias",
}
"""``module:function`` of each format; the function has the parameters of `read_trace` but the first."""


def read_trace(
    name: str,
    data: bytes | str,
    source: str,
    accept: Accept = anything,
    columns: Mapping[str, str] | None = None,
) -> Workload:
    """Read a trace in the format called `name`.

    `columns`: what the text calls the columns of our own format, ``csv``; see `decode_workload`.
    """
    if name not in READERS:
        raise UsageError(
            f"no format {name!r} of traces; {nearest(name, sorted(READERS))}", code="unknown-value", path="workload"
        )
    if columns and name != "csv":
        raise UsageError(
            f"names of columns are for workloads in our own format, and {readable(source)} is {name!r}",
            code="unsupported",
            path="columns",
        )
    module, _, function = READERS[name].partition(":")
    given = (columns,) if columns else ()
    if isinstance(data, bytes):
        data = unpacked(data, source)
    workload: Workload = getattr(import_module(module), function)(data, source, accept, *given)
    return workload
