"""The formats of traces by name, each reader imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from jigsaw_opt.documents.readers.table import Accept, anything
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import Workload

__all__ = ["READERS", "read_trace"]

READERS = {
    "csv": "jigsaw_opt.documents.workload_csv:decode_workload",
    "elasticflow": "jigsaw_opt.documents.readers.elasticflow:read_elasticflow",
    "muri": "jigsaw_opt.documents.readers.muri:read_muri",
    "gavel": "jigsaw_opt.documents.readers.gavel:read_gavel",
    "philly": "jigsaw_opt.documents.readers.philly:read_philly",
    "pollux": "jigsaw_opt.documents.readers.pollux:read_pollux",
    "sia": "jigsaw_opt.documents.readers.pollux:read_sia",
    "tiresias": "jigsaw_opt.documents.readers.tiresias:read_tiresias",
}
"""``module:function`` of each format; the function has the parameters of `read_trace` but the first."""


def read_trace(name: str, data: bytes | str, source: str, accept: Accept = anything) -> Workload:
    """Read a trace in the format called `name`.

    Parameters
    ----------
    name
        A name in `READERS`.
    data, source
        The text, and what problems call it.
    accept
        Says what is wrong with a job that is well written.

    Raises
    ------
    UsageError
        There is no such format.
    InvalidInputError
        With every line that is wrong.
    """
    if name not in READERS:
        raise UsageError(f"no format {name!r} of traces; there are {', '.join(sorted(READERS))}")
    module, _, function = READERS[name].partition(":")
    workload: Workload = getattr(import_module(module), function)(data, source, accept)
    return workload
