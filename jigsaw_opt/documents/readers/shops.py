"""Job shops of JSPLIB as task-graph jobs.

The instance has a job with a slot a machine, and a block an operation; a unit of time becomes a microsecond. An
operation that takes no time needs no machine: it is left out, and what waits for it waits for what is before it.

A file has lines that start with ``#``; numbers of jobs and machines; a line a job: pairs of machine (from 0) and time,
at most one for each machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import PurePath

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.text import counted

__all__ = ["read_jsplib"]

_TYPE = "machine"
_LONGEST_US = 10**12
"""Longest operation, in microseconds: sums over all lines of a file stay below 2^53."""
_WORD = re.compile(r"-?[0-9]{1,15}")
_NAMED = re.compile(r"# ?(\w[\w./+-]{0,99})\s*$")
Row = tuple[int, Sequence[int]]
Tell = Callable[[str], None]
"""Takes what is said of a file that can be read, in one line."""


def _say_nothing(message: str) -> None:
    """Take a message, and say it to nobody."""


def read_jsplib(data: bytes | str, source: str, name: str | None = None, tell: Tell = _say_nothing) -> Instance:
    """Read a job shop of JSPLIB.

    `data`: the content of the file; text, or bytes in UTF-8. `name`: name of the instance; by default the one word of a
    comment in the first line, as `jsplib_text` writes it, else that of the file without its endings. `tell`: called
    with what is left out, and with how many jobs visit some of the machines only.
    """
    lines = Lines(data, source)
    if name is None and (comment := _NAMED.match(next((line for _, line in lines), ""))):
        name = comment[1]
    machines, rows = _headed(lines)
    jobs: list[list[tuple[int, int]]] = []
    for number, row in rows:
        if len(row) % 2 or len(row) > 2 * machines:
            told = f"has {len(row)} numbers, not a pair for each of at most {machines} machines"
            lines.add(number, told, code="wrong-count")
            continue
        pairs = list(zip(row[::2], row[1::2], strict=True))
        for machine, time in pairs:
            _check_operation(lines, number, machine, machines, time)
        jobs.append(pairs)
    if shorter := sum(len(job) < machines for job in jobs):
        tell(f"{source}: jobs with fewer operations than the {counted(machines, 'machine')}: {shorter}")
    lines.raise_if_any()
    return _instance(name or PurePath(source).name.split(".")[0], jobs, source, tell)


def _headed(lines: Lines) -> tuple[int, list[Row]]:
    """Return the number of machines, and the lines of all jobs, of which there are as many as the first line says."""
    rows: list[Row] = []
    head: list[int] = []
    wrong = 0
    for number, line in lines:
        if line.lstrip().startswith("#"):
            continue
        row = _numbers_of(lines, number, line)
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


def _numbers_of(lines: Lines, number: int, line: str) -> list[int] | None:
    """Return the whole numbers of a line; None, with a problem, where it holds something else."""
    words = line.split()
    if not all(map(_WORD.fullmatch, words)):
        wrong = next(word for word in words if not _WORD.fullmatch(word))
        lines.add(number, f"holds {wrong[:40]!r} where a whole number stands", code="malformed")
        return None
    return [int(word) for word in words]


def _check_operation(lines: Lines, number: int, machine: int, machines: int, time: int) -> None:
    """Report a machine that there is not, and a duration that is not possible."""
    if not 0 <= machine < machines:
        lines.add(number, f"names a machine that is none of {machines}", code="out-of-range")
    if not 0 <= time <= _LONGEST_US:
        lines.add(number, f"has a duration of {time}; it is from 0 to 10^12", code="out-of-range")


def _instance(name: str, jobs: Sequence[Sequence[tuple[int, int]]], source: str, tell: Tell) -> Instance:
    """Return the instance whose only job has a slot for each machine and a chain of blocks for each row."""
    blocks, edges, left_out = list[TaskGraphBlock](), list[Edge](), 0
    for job, row in enumerate(jobs):
        chain = [
            TaskGraphBlock(f"{job}.{place}", (f"m{machine}",), {_TYPE: time})
            for place, (machine, time) in enumerate(row)
            if time
        ]
        blocks += chain
        edges += [Edge(before.name, after.name) for before, after in pairwise(chain)]
        left_out += len(row) - len(chain)
    if left_out:
        tell(f"{source}: left out: {counted(left_out, 'operation')} without a duration, which need no machine")
    if not blocks:
        raise InvalidInputError([Problem(source, "has no operation with a duration", code="empty")])
    slots = sorted({block.slots[0] for block in blocks})
    graph = TaskGraph(tuple(map(Slot, slots)), tuple(blocks), (), tuple(edges))
    cluster = Cluster((Server("shop", _TYPE, len(slots), 1, 1),))
    return Instance(name, cluster, {}, (TaskGraphJob(name, graph, 1),))
