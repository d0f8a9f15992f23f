"""Traces and measured throughputs of Gavel (OSDI 2020).

A trace has a job a line and no header: type, command, folder, argument of the steps, whether it needs data, steps,
GPUs, priority, objective of its duration (unused here) and arrival in seconds, with tabs between them. Earlier traces
have no folder; the earliest have no priority and objective either, and the arrival before the GPUs. Shockwave (NSDI
2023) adds how its batch size changes before the priority, and its duration before the arrival. Throughputs are
one JSON object: by GPU type and kind of job, iterations a second alone (``"null"``) or with another kind on the same
GPUs (its own, and the other's). ``TYPE_unconsolidated`` is for GPUs spread over more servers than need be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from jigsaw_opt.documents.parsing import parsed
from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.documents.readers.table import Accept, JobTable, Row, anything
from jigsaw_opt.documents.readers.tally import Tally
from jigsaw_opt.problem.rules.report import Report, quoted
from jigsaw_opt.problem.workload import TraceJob, Workload

_START, _STEPS = ("job_type", "command"), ("steps_argument", "data", "total_steps")
_COLUMNS = (*_START, "folder", *_STEPS, "scale_factor", "priority", "slo", "arrival")
_FORMS = {
    len(form): form
    for form in (
        (*_START, *_STEPS, "arrival", "scale_factor"),
        (*_START, *_STEPS, "scale_factor", "priority", "slo", "arrival"),
        _COLUMNS,
        (*_START, "folder", *_STEPS, "scale_factor", "mode", "priority", "slo", "duration", "arrival"),
    )
}
"""The columns of a trace by their number."""
_STATIC = "static"
"""The mode of Shockwave's jobs whose batch size stays as it is."""
_KIND = re.compile(r"\('(?P<model>[^']+)', (?P<gpus>[1-9][0-9]{0,5})\)")


_LEAST, _MOST = 1e-9, 1e9
"""Least and largest iterations a second that are taken."""


class GavelJobType(NamedTuple):
    """A type of job and its number of GPUs."""

    model: str
    gpus: int


Throughputs = Mapping[str, Mapping[GavelJobType, Mapping[GavelJobType | None, tuple[float, ...]]]]
"""Iterations a second by GPU type and kind: under None the one of the kind alone, else its own and its partner's."""


def resembles(head: str) -> int:
    """Return how many of its columns the beginning of a text has; 0 where it is of another format."""
    cells = head.lstrip().partition("\n")[0].split("\t")
    columns = _FORMS.get(len(cells), ())
    return len(cells) if columns and cells[columns.index("total_steps")].strip().isdecimal() else 0


def read_gavel(data: bytes | str, source: str = "gavel.trace", accept: Accept = anything) -> Workload:
    """Read a trace of Gavel or Shockwave; jobs are named by their line, and weigh as much as their priority, or 1.

    `data`: the content of the file; text, or bytes in UTF-8. `accept`: returns what is wrong with a job that has a
    model, one text a problem.
    """
    first = next((line for _, line in Lines(data, source)), "")
    columns = _FORMS.get(first.count("\t") + 1, _COLUMNS)
    table = JobTable(data, source, columns, separator="\t", columns=columns)
    return table.workload(source, lambda row: _job(row, table.tally), accept)


def _job(row: Row, tally: Tally) -> TraceJob:
    if row.has("mode") and row.text("mode") != _STATIC:
        tally.remark("jobs whose batch size changes (accordion, gns), read with that of their type throughout")
    return TraceJob(
        f"line-{row.number}",
        row.microseconds("arrival"),
        row.shared("job_type"),
        row.integer("scale_factor"),
        row.integer("total_steps"),
        weight=row.integer("priority") if row.has("priority") else 1,
    )


def read_throughputs(data: bytes | str, source: str = "$") -> Throughputs:
    """Read measured throughputs.

    Iterations a second by type of GPU, kind of job, and the kind beside it on the same GPUs (None for alone).

    `data`: the content of the file; text, or bytes in UTF-8.
    """
    found: dict[str, dict[GavelJobType, dict[GavelJobType | None, tuple[float, ...]]]] = {}

    def read(tree: dict[str, Any], report: Report) -> None:
        found.update((gpu, _of_type(table, gpu, report)) for gpu, table in tree.items())

    parsed(data, source, read)
    return found


def _of_type(table: Any, gpu: str, report: Report) -> dict[GavelJobType, dict[GavelJobType | None, tuple[float, ...]]]:
    if not isinstance(table, dict):
        report.add(("$", gpu), "the throughputs of a GPU type are an object by kind of job", code="wrong-type")
        return {}
    return {
        kind: _of_kind(rates, (gpu, key), report)
        for key, rates in table.items()
        if (kind := _kind(key, ("$", gpu), report)) is not None
    }


def _of_kind(rates: Any, where: tuple[str, str], report: Report) -> dict[GavelJobType | None, tuple[float, ...]]:
    place = (("$", where[0]), where[1])
    if not isinstance(rates, dict) or "null" not in rates:
        report.add(
            place, 'the throughputs of a kind of job are an object with "null", its throughput alone', code="wrong-type"
        )
        return {}
    found: dict[GavelJobType | None, tuple[float, ...]] = {}
    for key, value in rates.items():
        other = None if key == "null" else _kind(key, place, report)
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) == (1 if key == "null" else 2) and all(map(_is_rate, numbers)):
            found[other] = tuple(map(float, numbers))
        else:
            report.add(
                (place, key),
                f"expected 0 or a number from {_LEAST:g} to {_MOST:g}, for a pair a list of two",
                code="out-of-range",
            )
    return found


def _kind(key: str, place: Any, report: Report) -> GavelJobType | None:
    match = _KIND.fullmatch(key)
    if match is None:
        report.add(place, f"{quoted(key)} is no kind of job, as in ('ResNet-18 (batch size 64)', 2)", code="malformed")
        return None
    return GavelJobType(match["model"], int(match["gpus"]))


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (value == 0 or _LEAST <= value <= _MOST)
