"""Workloads in CSV, our own format: a job a line, units in the header. Described in docs/simulation.md."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from jigsaw_opt.documents.csv_text import csv_text, restored
from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything
from jigsaw_opt.problem.workload import TraceJob, Workload

__all__ = ["decode_workload", "encode_workload"]

_SUBMIT: Mapping[str, int] = {"submit_us": 1, "submit_ms": 1000, "submit_s": 1_000_000, "submit_h": 3_600_000_000}
_REQUIRED = ("name", "model", "gpus")
_OPTIONAL = ("iterations", "min_gpus", "max_gpus", "weight", "batch_size", "foreground")
_HEADER = ("name", "submit_us", *_REQUIRED[1:], *_OPTIONAL)


def decode_workload(data: bytes | str, source: str = "workload.csv", accept: Accept = anything) -> Workload:
    """Read a workload.

    Parameters
    ----------
    data, source
        The text, and what problems call it.
    accept
        Says what is wrong with a job that is well written.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    table = JobTable(data, source, _REQUIRED)
    submit = [name for name in _SUBMIT if table.has(name)]
    if len(submit) != 1:
        table.lines.add(1, f"{len(submit)} columns with the time of submission", f"one of {', '.join(_SUBMIT)}")
    for name in table.columns:
        if name not in (*_SUBMIT, *_REQUIRED, *_OPTIONAL):
            table.lines.add(1, f"unknown column {name!r}", f"known are {', '.join(_HEADER)}")
    table.lines.raise_if_any()
    return table.workload(source, partial(_job, submit=submit[0]), accept)


def encode_workload(workload: Workload) -> str:
    """Write a workload so that reading it gives the same jobs."""
    return csv_text(_HEADER, ([_cell(job, name) for name in _HEADER] for job in workload.jobs))


def _cell(job: TraceJob, name: str) -> object:
    value: object = getattr(job, name)
    return "" if value in (None, 0) and name != "submit_us" else int(value) if isinstance(value, bool) else value


def _job(row: Row, submit: str) -> TraceJob:
    gpus = row.integer("gpus")
    fewest, most = row.optional("min_gpus") or 0, row.optional("max_gpus") or 0
    if row.good and not (fewest or gpus) <= gpus <= (most or gpus):
        row.add(f"gpus is not between min_gpus and max_gpus: {gpus}")
    foreground = row.optional("foreground", least=0) or 0
    if foreground > 1:
        row.add(f"foreground is 0 or 1, not {foreground}")
    return TraceJob(
        restored(row.text("name")),
        row.microseconds(submit, _SUBMIT[submit]),
        restored(row.shared("model")),
        gpus,
        row.optional("iterations"),
        fewest,
        most,
        row.optional("weight") or 1,
        row.optional("batch_size"),
        foreground == 1,
    )
