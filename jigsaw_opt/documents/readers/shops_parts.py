"""What readers of shops and projects share: numbers of a line, operations, and the instance that they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.text import agreeing

__all__ = [
    "LONGEST_US",
    "WORD",
    "ShopOperation",
    "Tell",
    "instance_of_shop",
    "numbers_of",
    "refuse_choices",
    "require_time",
    "say_nothing",
    "without_empty",
]

_TYPE = "machine"
WORD = re.compile(r"-?[0-9]{1,15}")
LONGEST_US = 10**12
"""Longest operation, in microseconds: sums over all lines of a file stay below 2^53."""
_MOST_EDGES = 1_000_000
Tell = Callable[[str], None]
"""Takes what is said of a file that can be read, in one line."""


def say_nothing(message: str) -> None:
    """Take a message, and say it to nobody."""


@dataclass(frozen=True, slots=True)
class ShopOperation:
    """An operation or activity.

    `machines`: machines or resources that it has alone while it runs; empty where it shares none.
    """

    name: str
    time: int
    machines: tuple[str, ...]


def numbers_of(lines: Lines, number: int, line: str) -> list[int] | None:
    """Return the whole numbers of a line; None, with a problem, where it holds something else."""
    words = line.split()
    if not all(map(WORD.fullmatch, words)):
        wrong = next(word for word in words if not WORD.fullmatch(word))
        lines.add(number, f"holds {wrong[:40]!r} where a whole number stands", code="malformed")
        return None
    return [int(word) for word in words]


def refuse_choices(lines: Lines, choices: Sequence[tuple[int, str]], one: str, several: str) -> None:
    """Report what may choose, at the line of the first that does, so that a file of many has one problem."""
    if choices:
        number, first = choices[0]
        what = f"{len(choices):,} {agreeing(len(choices), one, several)}"
        told = f"{what} (the first: {first}), and a block has one duration and its slots"
        lines.add(number, told, code="does-not-fit")


def require_time(lines: Lines, number: int, time: int) -> None:
    """Report a duration that is not possible."""
    if not 0 <= time <= LONGEST_US:
        lines.add(number, f"has a duration of {time}; it is from 0 to 10^12", code="out-of-range")


def instance_of_shop(
    name: str | None,
    operations: Sequence[ShopOperation],
    edges: Sequence[tuple[str, str]],
    source: str,
    release: int = 0,
) -> Instance:
    """Return the instance whose only job has a slot for each machine.

    `name`: its name; None for that of the file without its endings. `edges`: names of two operations, the second of
    which waits for the first. `release`: when the job may begin, in microseconds.
    """
    if name is None:
        name = PurePath(source).name.split(".")[0]
    blocks, named = list[TaskGraphBlock](), dict[str, None]()
    for it in operations:
        slots = it.machines or (f"of {it.name}",)  # nothing else needs it, so that it has a GPU of its own
        named |= dict.fromkeys(slots)
        blocks.append(TaskGraphBlock(it.name, slots, {_TYPE: it.time}))
    if not blocks:
        raise InvalidInputError([Problem(source, "has no operation with a duration", code="empty")])
    try:
        graph = TaskGraph(tuple(map(Slot, sorted(named))), tuple(blocks), (), tuple(Edge(*it) for it in edges))
    except InvalidInputError as error:
        raise InvalidInputError(replace(it, path=f"{source}: {it.path}") for it in error.problems) from error
    cluster = Cluster((Server("shop", _TYPE, len(named), 1, 1),))
    return Instance(name, cluster, {}, (TaskGraphJob(name, graph, 1, release_us=release),))


def without_empty(
    tasks: Sequence[ShopOperation], edges: Sequence[tuple[str, str]], source: str
) -> tuple[list[ShopOperation], list[tuple[str, str]]]:
    """Leave out activities without a duration; what waits for one waits for all that it waits for.

    `edges`: names of two of them, the second of which waits for the first.
    """
    after: dict[str, set[str]] = {it.name: set() for it in tasks}
    before: dict[str, set[str]] = {it.name: set() for it in tasks}
    for first, second in edges:
        after[first].add(second)
        before[second].add(first)
    waits = sum(map(len, after.values()))
    for it in tasks:
        if it.time:
            continue
        sources, targets = before.pop(it.name), after.pop(it.name)
        if it.name in sources:
            raise InvalidInputError([Problem(source, f"activity {it.name} waits for itself", code="cycle")])
        waits -= len(sources) + len(targets)
        for first in sources:
            waits += len(targets - after[first])
            after[first] = after[first] - {it.name} | targets
        for second in targets:
            before[second] = before[second] - {it.name} | sources
        if waits > _MOST_EDGES:
            told = f"waits add up to more than {_MOST_EDGES} without the activities of no duration"
            raise InvalidInputError([Problem(source, told, code="too-large")])
    kept = [it for it in tasks if it.time]
    places = {it.name: place for place, it in enumerate(kept)}
    return kept, [(it.name, target) for it in kept for target in sorted(after[it.name], key=places.__getitem__)]
