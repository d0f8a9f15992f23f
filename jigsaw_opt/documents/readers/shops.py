"""Scheduling problems of the literature as task-graph jobs: JSPLIB, FJSPLIB and PSPLIB.

The instance has a job with a slot a machine or resource, and a block an operation or activity; a unit of time becomes a
microsecond. A GPU runs one block at a time and a block stays on its slots. So a problem is refused where an operation
may choose among machines, an activity among modes, or where a resource can serve several activities at once.

An operation or activity that takes no time needs no machine: it is left out, and what waits for it waits for what it
waits for.

* JSPLIB: lines that start with ``#``; numbers of jobs and machines; a line a job: pairs of machine (from 0) and time,
  at most one for each machine.
* FJSPLIB: numbers of jobs and machines; a line a job: number of operations, and for each of them the number of its
  machines with pairs of machine (from 1) and time.
* PSPLIB (``.sm``): sections ``PRECEDENCE RELATIONS``, ``REQUESTS/DURATIONS`` and ``RESOURCEAVAILABILITIES``. Or
  Patterson's form (``.rcp``), numbers alone: of activities and resources; capacities; and for each activity its
  duration, demands, number of successors and successors, however they are broken into lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.documents.readers.shops_parts import (
    ShopOperation,
    Tell,
    instance_of_shop,
    numbers_of,
    refuse_choices,
    require_time,
    say_nothing,
    without_empty,
)
from jigsaw_opt.documents.readers.shops_projects import read_psplib
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.text import counted

__all__ = ["SHOP_FORMATS", "read_fjsplib", "read_jsplib", "read_psplib"]

_NAMED = re.compile(r"# ?(\w[\w./+-]{0,99})\s*$")
Row = tuple[int, Sequence[int]]


def read_jsplib(data: bytes | str, source: str, name: str | None = None, tell: Tell = say_nothing) -> Instance:
    """Read a job shop of JSPLIB.

    `data`: the content of the file; text, or bytes in UTF-8. `name`: name of the instance; by default the one word of a
    comment in the first line, as `jsplib_text` writes it, else that of the file without its endings. `tell`: called
    with what is left out, and with how many jobs visit some of the machines only.
    """
    lines = Lines(data, source)
    if name is None and (comment := _NAMED.match(next((line for _, line in lines), ""))):
        name = comment[1]
    machines, rows = _headed(lines)
    jobs: list[list[ShopOperation]] = []
    for number, row in rows:
        if len(row) % 2 or len(row) > 2 * machines:
            told = f"has {len(row)} numbers, not a pair for each of at most {machines} machines"
            lines.add(number, told, code="wrong-count")
            continue
        pairs = zip(row[::2], row[1::2], strict=True)
        jobs.append([_operation(lines, number, machine, machines, time) for machine, time in pairs])
    if shorter := sum(len(job) < machines for job in jobs):
        tell(f"{source}: jobs with fewer operations than the {counted(machines, 'machine')}: {shorter}")
    return _job_shop(lines, jobs, name, tell)


def read_fjsplib(data: bytes | str, source: str, name: str | None = None, tell: Tell = say_nothing) -> Instance:
    """Read a flexible job shop of FJSPLIB whose operations have one machine each.

    `data, source, name, tell`: as those of `read_jsplib`; by default the name is that of the file.
    """
    lines = Lines(data, source)
    machines, rows = _headed(lines)
    jobs: list[list[ShopOperation]] = []
    choices: list[tuple[int, str]] = []
    for number, row in rows:
        operations, at = list[ShopOperation](), 1
        for _ in range(min(row[0], len(row))):
            count = row[at] if at < len(row) else 0
            pairs = row[at + 1 : at + 1 + 2 * count] if count > 0 else ()
            if count < 1 or len(pairs) < 2 * count:
                break
            if count > 1:
                choices.append((number, f"operation {len(operations)}, among {count}"))
            operations.append(_operation(lines, number, pairs[0] - 1, machines, pairs[1]))
            at += 1 + 2 * count
        if row[0] == 0:
            lines.add(number, "is a job without operations", code="empty")
        elif len(operations) != row[0] or at != len(row):
            lines.add(number, f"is not the line of a job of {row[0]} operations", code="wrong-count")
        jobs.append(operations)
    refuse_choices(lines, choices, "operation may choose its machine", "operations may choose their machines")
    return _job_shop(lines, jobs, name, tell)


SHOP_FORMATS: Mapping[str, Callable[[bytes | str, str, str | None, Tell], Instance]] = {
    "jsplib": read_jsplib,
    "fjsplib": read_fjsplib,
    "psplib": read_psplib,
}
"""Readers of shops and projects by the name of their format."""


def _headed(lines: Lines) -> tuple[int, list[Row]]:
    """Return the number of machines, and the lines of all jobs, of which there are as many as the first line says."""
    rows: list[Row] = []
    head: list[int] = []
    wrong = 0
    for number, line in lines:
        if line.lstrip().startswith("#"):
            continue
        # A flexible shop may say how many machines an operation has on average.
        row = numbers_of(lines, number, line if head else " ".join(line.split()[:2]))
        if not head:
            if row is None or len(row) != 2 or min(row) < 1:
                lines.add(number, "starts with numbers of jobs and machines, each at least 1", code="malformed")
                lines.raise_if_any()
            assert row is not None
            head = row
        elif row is None:
            wrong += 1
        else:
            rows.append((number, row))
    if not head:
        lines.add(None, "has no line with numbers of jobs and machines", code="empty")
        lines.raise_if_any()
    if len(rows) + wrong != head[0]:
        told = f"has lines of {counted(len(rows) + wrong, 'job')}, and says that there are {head[0]}"
        lines.add(None, told, code="wrong-count")
    return head[1], rows


def _operation(lines: Lines, number: int, machine: int, machines: int, time: int) -> ShopOperation:
    if not 0 <= machine < machines:
        lines.add(number, f"names a machine that is none of {machines}", code="out-of-range")
    require_time(lines, number, time)
    return ShopOperation("", time, (f"m{machine}",))


def _job_shop(lines: Lines, jobs: Sequence[Sequence[ShopOperation]], name: str | None, tell: Tell) -> Instance:
    lines.raise_if_any()
    operations, edges = list[ShopOperation](), list[tuple[str, str]]()
    for job, row in enumerate(jobs):
        own = [ShopOperation(f"{job}.{place}", it.time, it.machines) for place, it in enumerate(row)]
        operations += own
        edges += [(before.name, after.name) for before, after in pairwise(own)]
    kept, edges = without_empty(operations, edges, lines.source)
    if empty := len(operations) - len(kept):
        tell(f"{lines.source}: left out: {counted(empty, 'operation')} without a duration, which need no machine")
    return instance_of_shop(name, kept, edges, lines.source)
