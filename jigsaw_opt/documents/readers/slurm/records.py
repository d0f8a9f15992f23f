"""Records of ``sacct -P``, in which names and commands may hold bars and line breaks that nothing marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

from jigsaw_opt.documents.readers.times import is_missing, moment_us

Cells = tuple[int, list[str]]
"""The number of the line in which a record begins, and its cells."""
LAST = "SubmitLine"
"""The column of commands, which has most bars and line breaks of all."""
_BAR = "|"
_FREE = ("JobName", "Comment", "WorkDir", "AdminComment", "SystemComment", LAST)
"""Columns of free text."""
_JOB = re.compile(r"[0-9]+(?:_(?:[0-9]+|\[[^]]*\]?))?(?:\+[0-9]+)?(?:\.\w+(?:\+[0-9]+)?)?")
_COMMAND = re.compile(r"(?:\S*/)?(?:sbatch|srun|salloc|scrontab|strigger)\b.*|", re.DOTALL)
_CLOCK = re.compile(r"[0-9:.-]*|INVALID")


def is_job(text: str) -> bool:
    """Return whether a text is the number of a job, a task or a step, as in ``7_3.batch``."""
    return _JOB.fullmatch(text) is not None


def _is_resources(text: str) -> bool:
    """Return whether a text is a list as ``cpu=8,gres/gpu:a100=4``."""
    parts = text.split(",")
    return all(part.count("=") == 1 and part[0] != "=" and " " not in part for part in parts if part)


def _is_time(text: str) -> bool:
    return is_missing(text) or moment_us(text) is not None


_GOOD: Mapping[str, Callable[[str], object]] = {
    "JobID": is_job,
    "State": re.compile(r"[A-Z_]*(?: by .*| by|\+)?").fullmatch,
    "Submit": _is_time,
    "Start": _is_time,
    "End": _is_time,
    "Elapsed": _CLOCK.fullmatch,
    "AllocTRES": _is_resources,
    "ReqTRES": _is_resources,
    LAST: _COMMAND.fullmatch,
}
"""What cells look like, by which a record with too many of them is read."""
_MOST_SPLITS = 1000


def records_of(header: Sequence[str], lines: Iterable[Cells]) -> Iterator[Cells]:
    """Yield the records of lines that were split at bars.

    A line continues the record before it unless it begins as a record does. Of cells that are too many, those of one
    column of free text are put together so that all others look as they should.
    """
    kept: Cells | None = None
    for number, cells in lines:
        if kept is not None and not _begins(header, cells):
            kept[1][-1] += f" {cells[0]}"
            kept[1].extend(cells[1:])
            continue
        if kept is not None:
            yield kept[0], _settled(header, kept[1])
        kept = number, cells
    if kept is not None:
        yield kept[0], _settled(header, kept[1])


def _begins(header: Sequence[str], cells: Sequence[str]) -> bool:
    """Return whether cells are the beginning of a record, and not the rest of one."""
    if header and header[0] == "JobID":
        return len(cells) > 1 and is_job(cells[0])
    return len(cells) >= len(header)


def _settled(header: Sequence[str], cells: list[str]) -> list[str]:
    """Return as many cells as there are columns, where the bars of free text can be told."""
    more = len(cells) - len(header)
    free = [k for k, name in reversed([*enumerate(header)]) if name in _FREE]  # a command holds most bars
    if more <= 0 or not free:
        return cells
    best, most = cells, -1
    for number, extra in enumerate(combinations_with_replacement(free, more)):
        found = list(_merged(len(header), cells, extra))
        right = sum(name not in _GOOD or bool(_GOOD[name](cell)) for name, cell in zip(header, found, strict=True))
        if right > most:
            best, most = found, right
        if right == len(header) or number == _MOST_SPLITS:
            break
    return best


def _merged(columns: int, cells: Sequence[str], extra: Sequence[int]) -> Iterator[str]:
    """Yield the cells, with one more put into a column for each time that it is among the `extra` ones."""
    at = 0
    for column in range(columns):
        end = at + 1 + extra.count(column)
        yield _BAR.join(cells[at:end])
        at = end
