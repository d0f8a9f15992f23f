"""Traces in CSV: typed cells, with every problem under the number of its line."""

from __future__ import annotations

import csv
import re
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from jigsaw_opt.documents.readers.lines import Lines, whole
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload

__all__ = ["NO_TIME", "Accept", "JobTable", "Row", "anything", "from_first", "headed"]

Accept = Callable[[TraceJob], Sequence[str]]
"""What is wrong with a job that is well written: larger than the cluster, say, or of an unknown model."""
NO_TIME = frozenset({"", "Unknown", "None", "N/A"})
"""What logs write for a time that has not come."""
_MOST = Decimal(2**53 - 1)
_MOST_REAL = Decimal("1e300")
_LONGEST_QUOTE = 40
_ZERO = re.compile(r"0+(\.0*)?")
_EPOCH = datetime(1970, 1, 1)
_BYTE_ORDER_MARK = "\ufeff"


def anything(_job: TraceJob) -> Sequence[str]:
    """Accept every job."""
    return ()


def from_first(workload: Workload) -> Workload:
    """The workload with its first submission at time 0."""
    first_us = workload.jobs[0].submit_us
    jobs = (replace(job, submit_us=job.submit_us - first_us) for job in workload.jobs)
    return replace(workload, jobs=tuple(jobs))


def headed(head: str, columns: Sequence[str], separator: str = ",") -> int:
    """How many columns the first line of a text shares with a format; 0 where any of these is missing."""
    cells = {cell.strip().strip('"') for cell in head.partition("\n")[0].split(separator)}
    return len(columns) if cells.issuperset(columns) else 0


class JobTable:
    """A trace with one job a line under a header, or columns named by the caller where there is no header.

    Parameters
    ----------
    data, source
        The text, and what problems call it.
    required
        Columns that must be there; others may be.
    separator
        What stands between cells.
    columns
        Names of the columns of a text without a header.
    names
        What the text calls columns, by the names that they have here; those not in it have the same name.

    Attributes
    ----------
    stated
        The columns as the text calls them.
    """

    def __init__(
        self,
        data: bytes | str,
        source: str,
        required: Sequence[str],
        separator: str = ",",
        columns: Sequence[str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.lines = Lines(data, source)
        self._separator = separator
        self._rows = ((number, self._cells(number, line)) for number, line in self.lines)
        self._header = list(columns) if columns is not None else next(self._rows, (1, list[str]()))[1]
        if columns is None and self._header:
            self._header[0] = self._header[0].removeprefix(_BYTE_ORDER_MARK)
        self.stated = tuple(self._header)
        self._rename(names or {})
        for name in required:
            if name not in self._header:
                self.lines.add(1, f"no column {name!r}", f"the columns are {', '.join(self._header) or 'none'}")
        for name in sorted(name for name, times in Counter(self._header).items() if times > 1):
            self.lines.add(1, f"two columns are called {name!r}")

    def _rename(self, names: Mapping[str, str]) -> None:
        """Call columns as they are called here; one with a name that another was given gets out of its way."""
        for theirs in names.values():
            if theirs not in self._header:
                known = f"the columns are {', '.join(self.stated) or 'none'}"
                self.lines.add(1, f"no column {theirs!r}, which --columns names", known)
        ours = {theirs: own for own, theirs in names.items()}
        self._header = [ours.get(name, f"({name})" if name in names else name) for name in self._header]

    def has(self, column: str) -> bool:
        """Whether there is such a column."""
        return column in self._header

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._header)

    def __iter__(self) -> Iterator[Row]:
        self.lines.raise_if_any()  # without its columns no line can be read
        for number, cells in self._rows:
            if len(cells) == len(self._header):
                yield Row(self.lines, number, dict(zip(self._header, cells, strict=True)))
            else:
                self.lines.add(number, f"{len(cells)} cells under {len(self._header)} columns")

    def workload(
        self,
        name: str,
        job_of: Callable[[Row], TraceJob | None],
        accept: Accept,
        stages: dict[str, StageTimes] | None = None,
    ) -> Workload:
        """The workload whose jobs `job_of` reads, one from each row, or None from a row that is no job.

        Raises
        ------
        InvalidInputError
            With every problem of every line.
        """
        jobs: list[TraceJob] = []
        numbers = array("Q")
        for row in self:
            job = job_of(row)
            if job is None:
                continue
            for problem in accept(job) if job.model else ():
                row.add(problem)
            jobs.append(job)
            numbers.append(row.number)
        self._refuse_repeats(jobs, numbers)
        if not jobs:
            self.lines.add(None, "has no job")
        self.lines.raise_if_any()
        return Workload(name, tuple(jobs), stages or {})

    def _refuse_repeats(self, jobs: Sequence[TraceJob], numbers: Sequence[int]) -> None:
        """Note jobs with the name of one before; sorted names take far less memory than a table of them."""
        if not any(one == other for one, other in pairwise(sorted(job.name for job in jobs))):
            return
        first: dict[str, int] = {}
        for job, number in zip(jobs, numbers, strict=True):
            if first.setdefault(job.name, number) != number:
                self.lines.add(number, f"job {job.name!r} stands in line {first[job.name]} already")

    def _cells(self, number: int, line: str) -> list[str]:
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self._separator))]
        except csv.Error as error:
            self.lines.add(number, f"is no line of CSV: {error}")
            return []


class Row:
    """The cells of a line. A cell that cannot be read is noted as a problem and read as its least value.

    Parameters
    ----------
    lines
        Where problems are noted.
    number
        Of the line, from 1.
    cells
        By column.
    """

    def __init__(self, lines: Lines, number: int, cells: dict[str, str]) -> None:
        self._lines, self.number, self._cells = lines, number, cells
        self.good = True

    def add(self, message: str) -> None:
        """Note a problem of this line."""
        self._lines.add(self.number, message)
        self.good = False

    def has(self, column: str) -> bool:
        """Whether there is such a column."""
        return column in self._cells

    def text(self, column: str) -> str:
        """A cell that is not empty."""
        value = self._cells[column]
        if not value:
            self.add(f"{column} is empty")
        return value

    def optional_text(self, column: str) -> str:
        """A cell, which may be empty."""
        return self._cells[column]

    def shared(self, column: str) -> str:
        """A cell that is not empty and of which many lines have the same."""
        return sys.intern(self.text(column))

    def is_zero(self, column: str) -> bool:
        """Whether the number in a cell is 0; nothing is noted where it is none."""
        return _ZERO.fullmatch(self._cells[column]) is not None

    def integer(self, column: str, least: int = 1) -> int:
        """A whole number of at least `least`; also one written with a fraction of zeros."""
        number = self._number(column)
        if number is None:
            return least
        if number != number.to_integral_value():
            self.add(f"{column} is a whole number, not {number}")
            return least
        return self._at_least(column, number, least)

    def optional(self, column: str, least: int = 1) -> int | None:
        """A whole number, or None where the cell is empty or there is no such column."""
        return self.integer(column, least) if self._cells.get(column) else None

    def real(self, column: str, least: float = 0.0) -> float:
        """A number of at least `least`, as a float."""
        number = self._number(column, _MOST_REAL)
        if number is None:
            return least
        if number < least:
            self.add(f"{column} is {'negative' if number < 0 else 'too small'}: {number}")
            return least
        return float(number)

    def microseconds(self, column: str, unit_us: int = 1_000_000, least: int = 0) -> int:
        """A time that the trace gives in a unit of `unit_us`, to the nearest microsecond."""
        number = self._number(column)
        return least if number is None else self._at_least(column, number * unit_us, least, number)

    def moment(self, column: str) -> int:
        """A local date and time, in microseconds since 1970, to the second."""
        text = self.text(column)
        try:
            return round((datetime.fromisoformat(text) - _EPOCH).total_seconds()) * 1_000_000
        except (ValueError, TypeError):  # TypeError: a time with a zone
            self.add(f"{column} is a local date and time, not {text[:_LONGEST_QUOTE]!r}")
            return 0

    def _at_least(self, column: str, number: Decimal, least: int, shown: Decimal | None = None) -> int:
        try:
            value = whole(number)
        except ValueError as error:
            self.add(f"{column} is {error}")
            return least
        if value < least:
            self.add(f"{column} is {'negative' if number < 0 else 'too small'}: {number if shown is None else shown}")
            return least
        return value

    def _number(self, column: str, most: Decimal = _MOST) -> Decimal | None:
        """The number in a cell, or None, with the problem noted, where there is none between ``-most`` and `most`."""
        text = self.text(column)
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        # Compared before anything is worked out with it, which may overflow.
        if number.is_finite() and -most <= number <= most:
            return number
        if text:
            wrong = "out of range:" if number.is_finite() else "a number, not"
            self.add(f"{column} is {wrong} {text[:_LONGEST_QUOTE]!r}")
        return None
