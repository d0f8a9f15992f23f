"""Traces in CSV: typed cells, with every problem under the number of its line."""

from __future__ import annotations

import csv
import re
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from jigsaw_opt.documents.readers.lines import Lines, whole
from jigsaw_opt.documents.readers.tally import MOST_SPARED, REPEATED, Found, Tally, Unfinished, wrong_record
from jigsaw_opt.documents.readers.times import Zone, duration_us, is_missing, moment_us
from jigsaw_opt.errors import Code
from jigsaw_opt.problem.workload import StageTimes, TraceJob, Workload
from jigsaw_opt.text import printable

Accept = Callable[[TraceJob], Sequence[str]]
"""What is wrong with a job that is well written: larger than the cluster, say, or of an unknown model."""
_Numbered = tuple[int, list[str]]
"""The number of a line, and its cells."""
_MOST = Decimal(2**53 - 1)
_MOST_REAL = Decimal("1e300")
_LONGEST_QUOTE, _LONGEST_LIST = 40, 300
_NAMED_SEPARATOR = re.compile(r"sep=([,;\t|])")
"""How spreadsheets say before the header what parts the cells."""
_ZERO = re.compile(r"0+(\.0*)?")
_QUOTING = ",;"
"""Separators between cells that may stand in quotes; between others a quote is a character as any."""


def anything(_job: TraceJob) -> Sequence[str]:
    """Accept every job."""
    return ()


def from_first(workload: Workload, zoned: bool) -> Workload:
    """Return the workload with its first submission at time 0."""
    first_us = workload.jobs[0].submit_us

    def moved(job: TraceJob) -> TraceJob:
        start_us, end_us = (None if time_us is None else time_us - first_us for time_us in (job.start_us, job.end_us))
        return replace(job, submit_us=job.submit_us - first_us, start_us=start_us, end_us=end_us)

    jobs, unfinished = tuple(map(moved, workload.jobs)), tuple(map(moved, workload.unfinished))
    return replace(workload, jobs=jobs, unfinished=unfinished, first_us=first_us, zoned=zoned)


def headed(head: str, columns: Sequence[str], separator: str = "") -> int:
    """Count the columns that the first line of a text shares with a format; 0 where any of these is missing."""
    line = head.partition("\n")[0]
    cells = {cell.strip().strip('"') for cell in line.split(separator or _separator_of(line))}
    return len(columns) if cells.issuperset(columns) else 0


def _separator_of(header: str) -> str:
    """Return what stands between the cells of a header: the most frequent of comma, semicolon, tab and bar."""
    return max(",;\t|", key=header.count)


class JobTable:
    """A trace with one job a line under a header, or columns named by the caller where there is no header.

    `data, source`: the text, and what problems call it. `required`: columns that must be there; others may be.
    `separator`: what stands between cells; empty for a comma, semicolon, tab or bar, as the header has it. Behind a
    semicolon numbers may have a decimal comma. `columns`: names of the columns of a text without a header. `names`:
    what the text calls columns, by the names that they have here; those not in it have the same name. `records`: makes
    records of the header and the lines, which were split without regard to free text; None where each line is one.
    `strict`: whether a line that is wrong, or a second job of a name, makes the text invalid; else it is left out and
    counted, unless no job is left or nine lines of ten are wrong. `stated`: the columns as the text calls them.
    `tally`: counts what is left out, and why.
    """

    def __init__(
        self,
        data: bytes | str,
        source: str,
        required: Sequence[str],
        separator: str = "",
        columns: Sequence[str] | None = None,
        names: Mapping[str, str] | None = None,
        records: Callable[[Sequence[str], Iterator[_Numbered]], Iterator[_Numbered]] | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.lines = Lines(data, source)
        self._strict = strict
        self._spared = self.lines if strict else _SparedLines("", source)
        self.tally, self._zone = Tally(), Zone()
        lines = iter(self.lines)
        number, head = (1, "") if columns is not None else next(lines, (1, ""))
        named = _NAMED_SEPARATOR.fullmatch(head) if columns is None else None
        if named:
            number, head = next(lines, (2, ""))
        self._read = set[str]()
        self._separator = separator or (named[1] if named else _separator_of(head))
        self._header = list(columns or ()) or (self._cells(number, head) if head else [])
        rows: Iterator[_Numbered] = ((number, self._cells(number, line)) for number, line in lines)
        self._rows = rows if records is None else records(self._header, rows)
        self.stated = tuple(self._header)
        self._rename(names or {})
        for name in required:
            if name not in self._header:
                told = f"the columns are {', '.join(self._header) or 'none'}"
                self.lines.add(1, f"no column {name!r}", told, code="missing-field")
        for name in sorted(name for name, times in Counter(self._header).items() if times > 1 and name):
            self.lines.add(1, f"two columns are called {name!r}", code="duplicate-field")

    def _rename(self, names: Mapping[str, str]) -> None:
        """Call columns as they are called here; one with a name that another was given gets out of its way."""
        for theirs in names.values():
            if theirs not in self._header:
                known = f"the columns are {', '.join(self.stated) or 'none'}"
                self.lines.add(1, f"no column {theirs!r}, which --columns names", known, code="unknown-name")
        ours = {theirs: own for own, theirs in names.items()}
        self._header = [ours.get(name, f"({name})" if name in names else name) for name in self._header]

    def has(self, column: str) -> bool:
        """Return whether there is such a column."""
        return column in self._header

    def leave_aside(self, column: str, why: str) -> None:
        """Tell why a column is not read, in place of the remark on all that are not."""
        self._read.add(column)
        self.tally.remark(why)

    @property
    def zoned(self) -> bool:
        """Whether the moments that were read have a zone."""
        return self._zone.zoned

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._header)

    def __iter__(self) -> Iterator[Row]:
        self.lines.raise_if_any()  # without its columns no line can be read
        for number, cells in self._rows:
            if not any(cells):
                self.tally.remark("lines of empty cells passed over")
            elif len(cells) == len(self._header):
                row = _Cells(zip(self._header, cells, strict=True))
                row.read = self._read
                yield Row(self._spared, number, row, self._zone, self._separator == ";")
            else:
                wrong = f"{len(cells)} cells under {len(self._header)} columns"
                self._spared.add(number, wrong, code="wrong-count")
                if not self._strict:
                    self.tally.leave_out(wrong_record("more or fewer cells than there are columns"))

    def workload(
        self, name: str, job_of: Callable[[Row], Found], accept: Accept, stages: dict[str, StageTimes] | None = None
    ) -> Workload:
        """Return the workload of the jobs of all rows.

        `job_of`: reads the job of a row, or says why it is none. `accept`: returns what is wrong with a job that has a
        model, one text a problem. `stages`: times of the stages of models, by model; None for none.
        """
        found = (
            (row.number, job if row.good or self._strict else wrong_record(row.wrong))
            for row in self
            for job in [job_of(row)]
        )
        return self.workload_of(name, found, accept, stages)

    def workload_of(
        self, name: str, found: Iterable[tuple[int, Found]], accept: Accept, stages: dict[str, StageTimes] | None = None
    ) -> Workload:
        """Return the workload of jobs that were read.

        `found`: jobs, or reasons why there is none, each with the number of its line. `accept`: returns what is wrong
        with a job that has a model, one text a problem. `stages`: times of the stages of models, by model; None for
        none.
        """
        jobs: list[TraceJob] = []
        numbers = array("Q")
        for number, job in found:
            if isinstance(job, str | Unfinished):
                self.tally.leave_out(job)
                continue
            for problem in accept(job) if job.model else ():
                self.lines.add(number, problem, code="unsupported")
            jobs.append(job)
            numbers.append(number)
        for _ in (unread := [name for name in self._header if jobs and name and name not in self._read]):
            self.tally.remark(f"columns that are not read ({', '.join(map(printable, unread))[:_LONGEST_LIST]})")
        jobs = self._without_repeats(jobs, numbers)
        if not self._strict and self.tally.is_mostly_wrong(len(jobs)):
            self._spared.raise_if_any()
        if not jobs:
            self.lines.add(None, "has no job", self.tally.told(), code="empty")
        self.lines.raise_if_any()
        return self.tally.workload(name, jobs, stages)

    def _without_repeats(self, jobs: list[TraceJob], numbers: Sequence[int]) -> list[TraceJob]:
        """Return the first job of each name; sorted names take far less memory than a table of them."""
        if not any(one == other for one, other in pairwise(sorted(job.name for job in jobs))):
            return jobs
        first: dict[str, int] = {}
        kept: list[TraceJob] = []
        for job, number in zip(jobs, numbers, strict=True):
            if first.setdefault(job.name, number) == number:
                kept.append(job)
            elif self._strict:
                wrong = f"job {job.name!r} stands in line {first[job.name]} already"
                self.lines.add(number, wrong, code="duplicate-name")
            else:
                self.tally.leave_out(REPEATED)
        return kept

    def _cells(self, number: int, line: str) -> list[str]:
        if self._separator not in _QUOTING:
            return [cell.strip() for cell in line.split(self._separator)]
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self._separator))]
        except csv.Error as error:
            self.lines.add(number, f"is no line of CSV: {error}", code="malformed")
            return []


class _SparedLines(Lines):
    """What is wrong with lines that are left out: the first thousand, as there may be any number of them."""

    def add(self, number: int | None, message: str, hint: str = "", *, code: Code) -> None:
        if len(self.problems) < MOST_SPARED:
            super().add(number, message, hint, code=code)


class _Cells(dict[str, str]):
    """The cells of a line by column, which note the columns that are read."""

    read: set[str]

    def __getitem__(self, column: str) -> str:
        self.read.add(column)
        return super().__getitem__(column)

    def get(self, column: str, default: str = "") -> str:  # type: ignore[override]
        self.read.add(column)
        return super().get(column, default)


class Row:
    """The cells of a line. A cell that cannot be read is noted as a problem and read as its least value.

    `number`: number of the line, from 1. `cells`: text of each cell, by column. `zone`: whether the moments of the
    table so far have a zone. `decimal_comma`: whether numbers that are not whole may have a comma before their
    fraction.
    """

    def __init__(self, lines: Lines, number: int, cells: dict[str, str], zone: Zone, decimal_comma: bool) -> None:
        self._lines, self.number, self._cells = lines, number, cells
        self._zone, self._decimal_comma = zone, decimal_comma
        self.wrong = ""

    def add(self, message: str, *, code: Code) -> None:
        """Note a problem of this line."""
        self._lines.add(self.number, message, code=code)
        self.wrong = min(self.wrong, message, key=self._place) if self.wrong else message

    def _place(self, message: str) -> int:
        """Return the place of the column that a problem is of; the last where it is of none."""
        own = (place for place, column in enumerate(self._cells) if message.startswith(f"{column} "))
        return next(own, len(self._cells))

    @property
    def good(self) -> bool:
        """Whether nothing is wrong so far; else `wrong` has the first problem, by the order of the columns."""
        return not self.wrong

    def has(self, column: str) -> bool:
        """Return whether there is such a column."""
        return column in self._cells

    def text(self, column: str) -> str:
        """Return a cell that is not empty."""
        value = self._cells[column]
        if not value:
            self.add(f"{column} is empty", code="empty")
        return value

    def optional_text(self, column: str) -> str:
        """Return a cell, which may be empty; empty where there is no such column."""
        return self._cells.get(column, "")

    def shared(self, column: str) -> str:
        """Return a cell that is not empty and of which many lines have the same."""
        return sys.intern(self.text(column))

    def is_missing(self, column: str) -> bool:
        """Return whether a cell has nothing, or what logs write for a time that has not come; or is not there."""
        return is_missing(self._cells.get(column, ""))

    def is_zero(self, column: str) -> bool:
        """Return whether the number in a cell is 0; nothing is noted where it is none."""
        return _ZERO.fullmatch(self._cells[column]) is not None

    def integer(self, column: str, least: int = 1) -> int:
        """Return a whole number; also one written with a fraction of zeros."""
        if self._decimal_comma and "," in self._cells[column]:  # of thousands, perhaps
            self.add(f"{column} is a whole number, not {self._cells[column][:_LONGEST_QUOTE]!r}", code="wrong-type")
            return least
        number = self._number(column)
        if number is None:
            return least
        if number != number.to_integral_value():
            self.add(f"{column} is a whole number, not {number}", code="out-of-range")
            return least
        return self._at_least(column, number, least)

    def optional(self, column: str, least: int = 1) -> int | None:
        """Return a whole number, or None where the cell is empty or there is no such column."""
        return self.integer(column, least) if self._cells.get(column) else None

    def real(self, column: str, least: float = 0.0) -> float:
        """Return a number as a float."""
        number = self._number(column, _MOST_REAL)
        if number is None:
            return least
        if number < least:
            self.add(f"{column} is {'negative' if number < 0 else 'too small'}: {number}", code="out-of-range")
            return least
        return float(number)

    def stated(self, column: str) -> str | None:
        """Return a text, or None where nothing is in the cell or there is no such column."""
        return self.shared(column) if self._cells.get(column) else None

    def microseconds(self, column: str, unit_us: int = 1_000_000, least: int = 0) -> int:
        """Return a time that the trace gives in some unit, to the nearest microsecond."""
        number = self._number(column)
        return least if number is None else self._at_least(column, number * unit_us, least, number)

    def moment(self, column: str) -> int:
        """Return a date and time in microseconds since 1970; either all of a table have a zone, or all are local."""
        text = self.text(column)
        found = moment_us(text) if text else None
        if found is None:
            if text:
                told = f"{column} is a date and time as 2026-01-31 08:30, not {text[:_LONGEST_QUOTE]!r}"
                self.add(told, code="malformed")
            return 0
        problem = self._zone.problem(found.zoned, f"line {self.number}")
        if problem:
            self.add(f"{column} {problem}", code="mismatch")
        return found.time_us

    def duration(self, column: str, unit_us: int = 1_000_000, least: int = 0) -> int:
        """Return a number of units, or a time as in ``1-02:03:04`` or ``02:03:04``, in microseconds."""
        found = duration_us(self._cells[column])
        return self.microseconds(column, unit_us, least) if found is None else found

    def _at_least(self, column: str, number: Decimal, least: int, shown: Decimal | None = None) -> int:
        try:
            value = whole(number)
        except ValueError as error:
            self.add(f"{column} is {error}", code="out-of-range")
            return least
        if value < least:
            told = f"{column} is {'negative' if number < 0 else 'too small'}: {number if shown is None else shown}"
            self.add(told, code="out-of-range")
            return least
        return value

    def _number(self, column: str, most: Decimal = _MOST) -> Decimal | None:
        """Return the number in a cell; None, with the problem noted, where none lies between ``-most`` and `most`."""
        text = self.text(column)
        try:
            number = Decimal(text.replace(",", ".") if self._decimal_comma and "." not in text else text)
            if "_" in text or not text.isascii():  # which Decimal takes, as in 1_000 or in Arabic digits
                number = Decimal("NaN")
        except InvalidOperation:
            number = Decimal("NaN")
        # Compared before anything is worked out with it, which may overflow.
        if number.is_finite() and -most <= number <= most:
            return number
        if text:
            told = text[:_LONGEST_QUOTE]
            if number.is_finite():
                self.add(f"{column} is out of range: {told!r}", code="out-of-range")
            else:
                self.add(f"{column} is a number, not {told!r}", code="wrong-type")
        return None
