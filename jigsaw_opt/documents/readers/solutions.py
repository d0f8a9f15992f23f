"""Solution files of engines for mixed-integer programs, told apart by their first lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from math import isfinite
from typing import NamedTuple

from jigsaw_opt.documents.readers.lines import Lines

_Line = tuple[int, str]
_MOST_LINES = 50_000_000
"""HiGHS lists columns and rows, of which a program that may be written has more than a trace has jobs."""
_OBJECTIVE = re.compile(r"objective(?: value)?(?:\s*[:=])?\s+(\S+)", re.IGNORECASE)
_CBC = re.compile(r"^[A-Za-z].* - objective value\s")
_NOTHING = re.compile(r"infeasible|unbounded|no (?:integer )?solution|not solved", re.IGNORECASE)
_FORMATS = "known are the solution files of HiGHS (raw, of write_solution_style 0), SCIP, CBC and Gurobi"


@dataclass(frozen=True, slots=True)
class EngineSolution:
    """The values and the objective in a solution file.

    `engine`: name of the engine whose format it has. `objective`: objective that it states, or None. `values`: value of
    each column that it lists. `complete`: whether the engine lists every column; others leave out those that are 0.
    """

    engine: str
    objective: float | None
    values: Mapping[str, float]
    complete: bool


class _Format(NamedTuple):
    """The place of the columns in a file."""

    engine: str
    columns: Iterable[_Line]
    status: str
    name: int
    complete: bool = False


def read_solution(data: bytes | str, source: str = "solution") -> EngineSolution:
    """Read a solution file."""
    lines = Lines(data, source, _MOST_LINES)
    text = list(lines)
    found = _format_of(text)
    if found is None:
        lines.add(None, "is no solution file", _FORMATS, code="unknown-format")
    elif _NOTHING.search(found.status):
        lines.add(None, f"holds no solution: {found.engine} says {found.status.strip()!r}", code="empty")
    lines.raise_if_any()
    assert found is not None
    values = _values(lines, found)
    objectives = (match[1] for _, line in text if (match := _OBJECTIVE.search(line)))
    objective = next((value for word in objectives if (value := _number(word)) is not None), None)
    if not values and not lines.problems:
        lines.add(None, f"holds no solution: {found.engine} lists no column", code="empty")
    lines.raise_if_any()
    return EngineSolution(found.engine, objective, values, found.complete)


def _format_of(text: list[_Line]) -> _Format | None:
    """Return the format of a file by its first lines; None where it is unknown."""
    first = text[0][1].lstrip() if text else ""
    if first == "Model status":
        return _highs(text)
    if first.startswith(("solution status:", "objective value:")):
        rows = [row for row in text if not row[1].startswith(("solution status:", "objective value:"))]
        said = [line for _, line in text[:3] if line.startswith(("solution status:", "no solution"))]
        return _Format("SCIP", rows, " ".join(said).removeprefix("solution status:"), 0)
    if first.startswith(("# Solution for model", "# Objective value")):
        return _Format("Gurobi", [row for row in text if not row[1].startswith("#")], "", 0)
    if _CBC.match(first):
        # Columns beyond their bounds are marked by two stars.
        rows = [(number, line.removeprefix("**")) for number, line in text[1:]]
        return _Format("CBC", rows, first.split(" - objective")[0], 1)
    return None


def _highs(text: list[_Line]) -> _Format:
    """Return the columns below their heading, up to the next one; whether they are a solution stands above it."""
    begin = next((k for k, (_, line) in enumerate(text) if line.startswith("# Primal solution values")), len(text) - 1)
    stated = [line for _, line in text[begin + 1 : begin + 2]]
    status = "" if stated == ["Feasible"] else f"no solution: {text[1][1]}" if len(text) > 1 else "no solution"
    return _Format("HiGHS", _section(text[begin + 1 :]), status, 0, complete=True)


def _section(text: list[_Line]) -> Iterator[_Line]:
    rest = dropwhile(lambda numbered: not numbered[1].startswith("# Columns"), text)
    next(rest, None)
    return takewhile(lambda numbered: not numbered[1].startswith("#"), rest)


def _values(lines: Lines, found: _Format) -> dict[str, float]:
    values: dict[str, float] = {}
    for number, line in found.columns:
        words = line.split()
        value = _number(words[found.name + 1]) if len(words) > found.name + 1 else None
        if value is None:
            lines.add(number, "has no column with a finite value", code="malformed")
        elif words[found.name] in values:
            lines.add(number, f"column {words[found.name]!r} stands there twice", code="duplicate-name")
        else:
            values[words[found.name]] = value
    return values


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if isfinite(value) else None
