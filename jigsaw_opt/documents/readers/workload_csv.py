"""Workloads in CSV, our own format: a job a line, units in the header. Described in docs/simulation.md."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from jigsaw_opt.documents.csv_text import restored
from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything, from_first, headed
from jigsaw_opt.documents.readers.tally import NEVER_STARTED, NO_GPU, STILL_RUNNING, Found, Unfinished
from jigsaw_opt.documents.readers.times import moment_us
from jigsaw_opt.errors import UsageError, malformed
from jigsaw_opt.problem.workload import LARGEST, STATED, STATED_LISTS, TraceJob, Workload
from jigsaw_opt.text import nearest, suggestion

_UNITS: Mapping[str, int] = {"us": 1, "ms": 1000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_SPELT = {"sec": "s", "secs": "s", "seconds": "s", "mins": "min", "minutes": "min", "hours": "h"}


def _in_units(what: str) -> Mapping[str, int]:
    """Return the columns of a time, with the microseconds of their units."""
    return {f"{what}_{unit}": us for unit, us in _UNITS.items()}


_SUBMIT, _DURATION, _LIMIT = _in_units("submit"), _in_units("duration"), _in_units("time_limit")
_DATED = "submit"
_RECORDED = {what: _in_units(what) for what in ("start", "end")}
"""Times that follow submissions: beside dates of submission they are dates as well, in columns without a unit."""
_TIMES: Mapping[str, int] = {**_SUBMIT, **_DURATION, **_LIMIT, **_RECORDED["start"], **_RECORDED["end"]}
BETWEEN_NAMES = "|"
_OPTIONAL = ("min_gpus", "max_gpus", "weight", "batch_size", "foreground")
_INDEX = ("", "Unnamed: 0")
"""What pandas calls the column with the numbers of rows, once written and once read and written again."""
_DATE = re.compile(r"[0-9]{4}-")
_LONGEST_QUOTE = 40
_ArrayLimits = dict[str, tuple[int | None, int]]
"""By array the limit that its first line states, and the number of that line."""
HEADER = ("name", "submit_us", "model", "gpus", "iterations", *_OPTIONAL)
_OURS = tuple(dict.fromkeys((*HEADER, _DATED, *_RECORDED, *STATED, *_TIMES)))


def columns_of(text: str) -> dict[str, str]:
    """Return what a table calls our columns, by our names, from words such as ``gpus=num_gpu,submit_s=time``."""
    columns: dict[str, str] = {}
    for word in text.split(",") if text else ():
        own, equals, theirs = (part.strip() for part in word.partition("="))
        if not equals or not theirs or own in columns or theirs in columns.values():
            raise malformed("columns", f"columns are OURS=THEIRS between commas, each once, not {word!r}")
        if own not in _OURS:
            known = nearest(own, tuple(dict.fromkeys((*HEADER, _DATED, *_DURATION, *STATED))))
            raise UsageError(f"a workload has no column {own!r}; {known}", code="unknown-name", path="columns")
        _refuse_other_unit(own, theirs)
        columns[own] = theirs
    return columns


def _refuse_other_unit(own: str, theirs: str) -> None:
    """Refuse to read a time from a column whose name ends in another unit."""
    what, _, unit = own.rpartition("_")
    ending = theirs.lower().rpartition("_")[2] if "_" in theirs else ""
    stated = _SPELT.get(ending, ending)
    if own in _TIMES and stated in _UNITS and stated != unit:
        told = f"column {theirs!r} is named for another unit than {own!r}; {what}_{stated}={theirs} takes it"
        raise UsageError(told, code="contradiction", path="columns")


def decode_workload(
    data: bytes | str, source: str = "workload.csv", accept: Accept = anything, columns: Mapping[str, str] | None = None
) -> Workload:
    """Read a workload.

    `columns`: what the text calls our columns, by our names. Where it is given, columns that are not ours are left
    aside, and so are lines with 0 GPUs.
    """
    table = JobTable(data, source, (), names=columns, strict=not columns)
    if not table.has("gpus"):
        _lacks(table, "no column 'gpus'", ("gpus",), "gpus")
    submit, duration = _only(table, "submission", (*_SUBMIT, _DATED)), None
    if any(map(table.has, _DURATION)):
        duration = _only(table, "duration", _DURATION)
    elif not table.has("model"):
        _lacks(table, "no column 'model', nor one with the duration", _DURATION, "duration_s")
    # In a table of others a column that merely has one of these names may hold anything.
    stated = {} if submit is None else _stated_columns(table, submit, columns or table.columns)
    if not columns:
        _refuse_unknown(table, duration)
    table.lines.raise_if_any()
    assert submit is not None
    job_of = partial(_job, submit=submit, duration=duration, stated=stated, limits={})
    workload = table.workload(
        source, (lambda row: NO_GPU if row.is_zero("gpus") else job_of(row)) if columns else job_of, accept
    )
    return from_first(workload, table.zoned) if submit == _DATED else workload


def _only(table: JobTable, what: str, names: Iterable[str]) -> str | None:
    """Return the column of that time, in whichever unit; any other number than one is a problem."""
    found = [name for name in names if table.has(name)]
    if not found:
        _lacks(table, f"no column with the time of {what}", names, "submit_s", f" (or {_DATED}=X for dates and times)")
    elif len(found) > 1:
        told = f"{len(found)} columns with the time of {what}"
        table.lines.add(1, told, f"one of {', '.join(names)}", code="ambiguous")
    return found[0] if found else None


def _stated_columns(table: JobTable, submit: str, read: Collection[str]) -> dict[str, str]:
    """Return the columns, of those to be `read`, of what jobs state beyond their work, by the names of its fields."""
    found = {name: name for name in STATED if name in read and not name.endswith("_us")}
    for what, in_units in {"time_limit": _LIMIT, **_RECORDED}.items():
        dated = submit == _DATED and what in _RECORDED
        wanted = (what,) if dated else tuple(in_units)
        for name in (what, *in_units):
            if name in read and (name not in wanted or f"{what}_us" in found):
                beside = found.get(f"{what}_us", submit)
                told = f"column {name!r} beside {beside!r}"
                table.lines.add(1, told, f"one of {', '.join(wanted)}", code="not-together")
            elif name in read:
                found[f"{what}_us"] = name
    return found


def _lacks(table: JobTable, told: str, names: Iterable[str], usual: str, other: str = "") -> None:
    """Note that none of some columns is there, and how to name one of those that are, for the `usual` one."""
    known, found = ", ".join(names), ", ".join(filter(None, table.stated)) or "none"
    table.lines.add(1, told, f"{known}; or --columns {usual}=X{other}, where X is one of {found}", code="missing-field")


def _refuse_unknown(table: JobTable, duration: str | None) -> None:
    """Refuse columns that are none of ours; a job that states its duration has no model and no iterations."""
    known = HEADER if duration is None else ("name", "submit_us", "duration_us", "gpus", *_OPTIONAL)
    others = {*_OURS} - {*HEADER, *_DURATION}
    for name in table.columns:
        if name in _INDEX:
            table.leave_aside(name, "column without a name left aside")
        elif name not in (*known, *others) and not (duration and name in _DURATION):
            table.lines.add(
                1,
                f"unknown column {name!r}",
                suggestion(name, (*known, *_SUBMIT, *_DURATION)) or nearest(name, known),
                code="unknown-field",
            )


def resembles(head: str) -> int:
    """Return how many of our columns the beginning of a text has; 0 where it is of another format."""
    submit = max(headed(head, ("gpus", name)) for name in (*_SUBMIT, _DATED))
    return submit and submit + max(headed(head, (name,)) for name in ("model", *_DURATION))


def _number_us(row: Row, submit: str) -> int:
    """Return a time of submission that is a number; what is a date and time instead has a column of its own."""
    if _DATE.match(text := row.optional_text(submit)) and moment_us(text):
        dated = f"a column of dates and times is called {_DATED}, as by --columns {_DATED}=X"
        row.add(f"{submit} is a number, not {text[:_LONGEST_QUOTE]!r}; {dated}", code="wrong-type")
        return 0
    return row.microseconds(submit, _SUBMIT[submit])


def _job(row: Row, submit: str, duration: str | None, stated: Mapping[str, str], limits: _ArrayLimits) -> Found:
    lacks_duration = duration and row.is_missing(duration)
    if lacks_duration and ("end_us" in stated and not row.is_missing(stated["end_us"])):
        return NEVER_STARTED  # it was cancelled before
    gpus = row.integer("gpus")
    fewest, most = row.optional("min_gpus") or 0, row.optional("max_gpus") or 0
    if row.good and not (fewest or gpus) <= gpus <= (most or gpus):
        row.add(f"gpus is not between min_gpus and max_gpus: {gpus}", code="contradiction")
    foreground = _truth(row, "foreground") or False
    name = restored(row.text("name")) if row.has("name") else f"line-{row.number}"
    submit_us = row.moment(submit) if submit == _DATED else _number_us(row, submit)
    if lacks_duration:
        told = _stated(row, stated, limits)
        reason = NEVER_STARTED if told.get("start_us") is None else STILL_RUNNING
        return Unfinished.of(name, submit_us, gpus, reason, **told)
    if duration:
        job = TraceJob.lasting(name, submit_us, gpus, row.duration(duration, _DURATION[duration]))
    else:
        job = TraceJob(name, submit_us, restored(row.shared("model")), gpus, row.optional("iterations"))
    weight, batch = row.optional("weight") or 1, row.optional("batch_size")
    job = replace(job, min_gpus=fewest, max_gpus=most, weight=weight, batch_size=batch, foreground=foreground)
    return replace(job, **_stated(row, stated, limits))


def _truth(row: Row, column: str) -> bool | None:
    """Return whether a cell has a 1, and not a 0; None where it is empty or there is no such column."""
    number = row.optional(column, least=0)
    if number is not None and number > 1:
        row.add(f"{column} is 0 or 1, not {number}", code="out-of-range")
    return None if number is None else number == 1


def _stated(row: Row, columns: Mapping[str, str], limits: _ArrayLimits) -> dict[str, Any]:
    """Return what a line states of a job beyond its work."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if name in ("priority", "array_limit"):
            found[name] = row.optional(column, least=0 if name == "priority" else 1)
        elif name == "preemptible":
            found[name] = _truth(row, column)
        elif name in STATED_LISTS:
            words = restored(row.stated(column) or "").split(BETWEEN_NAMES)
            found[name] = tuple(word.strip() for word in words if word.strip()) or None
        elif not name.endswith("_us"):
            found[name] = text if (text := row.stated(column)) is None else restored(text)
        elif column in _LIMIT:  # only an empty cell says that there is none
            found[name] = row.duration(column, _LIMIT[column], least=1) if row.optional_text(column) else None
        elif row.is_missing(column):
            continue
        elif column in _TIMES:
            found[name] = row.microseconds(column, _TIMES[column], least=-LARGEST)
        else:
            found[name] = row.moment(column)
    _check_array(row, found.get("array"), found.get("array_limit"), limits)
    return found


def _check_array(row: Row, array: str | None, limit: int | None, limits: _ArrayLimits) -> None:
    """Note a limit without an array, and one that is not that of the first task of its array."""
    if array is None:
        if limit is not None:
            row.add("array_limit is of an array, and array is empty", code="contradiction")
        return
    first, number = limits.setdefault(array, (limit, row.number))
    if limit != first:
        own, there = ("none" if time is None else time for time in (limit, first))
        row.add(f"array_limit is {own}, and in line {number} it is {there} for the same array", code="contradiction")
