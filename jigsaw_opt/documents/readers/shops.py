"""Scheduling problems of the literature as task-graph jobs: JSPLIB, FJSPLIB and PSPLIB.

The instance has a job with a slot a machine or resource, and a block an operation or activity; a unit of time becomes a
microsecond. A GPU runs one block at a time and a block stays on its slots. So a problem is refused where an operation
may choose among machines, an activity among modes, or where a resource can serve several activities at once.

* JSPLIB: lines that start with ``#``; numbers of jobs and machines; a line a job: pairs of machine (from 0) and time.
* FJSPLIB: numbers of jobs and machines; a line a job: number of operations, and for each of them the number of its
  machines with pairs of machine (from 1) and time.
* PSPLIB (``.sm``): sections ``PRECEDENCE RELATIONS``, ``REQUESTS/DURATIONS`` and ``RESOURCEAVAILABILITIES``. Or
  Patterson's form (``.rcp``), numbers alone: of activities and resources; capacities; and for each activity its
  duration, demands, number of successors and successors, however they are broken into lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import PurePath

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.errors import InvalidInputError, Problem
from jigsaw_opt.problem.cluster import Cluster, Server
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.task_graph import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob
from jigsaw_opt.text import agreeing, counted

__all__ = ["SHOP_FORMATS", "read_fjsplib", "read_jsplib", "read_psplib"]

_TYPE = "machine"
_WORD = re.compile(r"-?[0-9]{1,15}")
_NAMED = re.compile(r"# ?(\w[\w./+-]{0,99})\s*$")
_LARGEST = 10**12
"""Longest operation, in microseconds: sums over all lines of a file stay below 2^53."""
_MOST_EDGES = 1_000_000
Row = tuple[int, Sequence[int]]


def read_jsplib(data: bytes | str, source: str, name: str | None = None) -> Instance:
    """Read a job shop of JSPLIB.

    Parameters
    ----------
    data
        The content of the file; text, or bytes in UTF-8.
    source
        What problems call it: usually the name of the file.
    name
        Name of the instance; by default the one word of a comment in the first line, as `jsplib_text` writes it, else
        that of the file without its endings.

    Raises
    ------
    InvalidInputError
        With every line that is wrong.
    """
    lines = Lines(data, source)
    if name is None and (comment := _NAMED.match(next((line for _, line in lines), ""))):
        name = comment[1]
    machines, rows = _headed(lines)
    jobs: list[list[_ShopOperation]] = []
    for number, row in rows:
        if len(row) != 2 * machines:
            lines.add(number, f"has {len(row)} numbers, not a pair for each of {machines} machines", code="wrong-count")
            continue
        pairs = zip(row[::2], row[1::2], strict=True)
        jobs.append([_operation(lines, number, machine, machines, time) for machine, time in pairs])
    return _job_shop(lines, jobs, name)


def read_fjsplib(data: bytes | str, source: str, name: str | None = None) -> Instance:
    """Read a flexible job shop of FJSPLIB whose operations have one machine each.

    Parameters
    ----------
    data, source, name
        As those of `read_jsplib`; by default the name is that of the file.

    Raises
    ------
    InvalidInputError
        With every line that is wrong, or that lets an operation choose its machine.
    """
    lines = Lines(data, source)
    machines, rows = _headed(lines)
    jobs: list[list[_ShopOperation]] = []
    choices: list[tuple[int, str]] = []
    for number, row in rows:
        operations, at = list[_ShopOperation](), 1
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
    _refuse_choices(lines, choices, "operation may choose its machine", "operations may choose their machines")
    return _job_shop(lines, jobs, name)


def read_psplib(data: bytes | str, source: str, name: str | None = None) -> Instance:
    """Read a project of PSPLIB, or of Patterson's form, whose resources serve one activity at a time.

    Each activity has one mode.

    A resource that never binds, as all activities together fit, is left out. So are activities without a duration.

    Parameters
    ----------
    data, source, name
        As those of `read_jsplib`; by default the name is that of the file.

    Raises
    ------
    InvalidInputError
        With every line that is wrong, and every resource or activity that does not fit.
    """
    lines = Lines(data, source)
    project = _Project()
    sections = list(_sections(lines))
    for section, number, line in sections:
        project.take(section, number, line, lines)
    if not sections:
        _take_patterson(project, lines)
    project.conclude(lines)
    lines.raise_if_any()
    tasks = [_ShopOperation(str(it), project.durations[it], project.machines[it]) for it in project.durations]
    edges = [(str(before), str(after)) for before, afters in project.successors.items() for after in afters]
    kept, edges = _without_empty(tasks, edges, source)
    return _instance(name, kept, edges, source, project.release)


SHOP_FORMATS: Mapping[str, Callable[[bytes | str, str, str | None], Instance]] = {
    "jsplib": read_jsplib,
    "fjsplib": read_fjsplib,
    "psplib": read_psplib,
}
"""Readers of shops and projects by the name of their format."""


@dataclass(frozen=True, slots=True)
class _ShopOperation:
    name: str
    time: int
    machines: tuple[str, ...]


def _numbers(lines: Lines, number: int, line: str) -> list[int] | None:
    words = line.split()
    if not all(map(_WORD.fullmatch, words)):
        wrong = next(word for word in words if not _WORD.fullmatch(word))
        lines.add(number, f"holds {wrong[:40]!r} where a whole number stands", code="malformed")
        return None
    return [int(word) for word in words]


def _headed(lines: Lines) -> tuple[int, list[Row]]:
    """Return the number of machines, and the lines of all jobs, of which there are as many as the first line says."""
    rows: list[Row] = []
    head: list[int] = []
    wrong = 0
    for number, line in lines:
        if line.lstrip().startswith("#"):
            continue
        # A flexible shop may say how many machines an operation has on average.
        row = _numbers(lines, number, line if head else " ".join(line.split()[:2]))
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


def _operation(lines: Lines, number: int, machine: int, machines: int, time: int) -> _ShopOperation:
    if not 0 <= machine < machines:
        lines.add(number, f"names a machine that is none of {machines}", code="out-of-range")
    _require_time(lines, number, time, 1)
    return _ShopOperation("", time, (f"m{machine}",))


def _refuse_choices(lines: Lines, choices: Sequence[tuple[int, str]], one: str, several: str) -> None:
    """Report what may choose, at the line of the first that does, so that a file of many has one problem."""
    if choices:
        number, first = choices[0]
        what = f"{len(choices):,} {agreeing(len(choices), one, several)}"
        told = f"{what} (the first: {first}), and a block has one duration and its slots"
        lines.add(number, told, code="does-not-fit")


def _require_time(lines: Lines, number: int, time: int, least: int) -> None:
    if not least <= time <= _LARGEST:
        lines.add(number, f"has a duration of {time}; it is from {least} to 10^12", code="out-of-range")


def _job_shop(lines: Lines, jobs: Sequence[Sequence[_ShopOperation]], name: str | None) -> Instance:
    lines.raise_if_any()
    operations, edges = list[_ShopOperation](), list[tuple[str, str]]()
    for job, row in enumerate(jobs):
        own = [_ShopOperation(f"{job}.{place}", it.time, it.machines) for place, it in enumerate(row)]
        operations += own
        edges += [(before.name, after.name) for before, after in pairwise(own)]
    return _instance(name, operations, edges, lines.source)


def _instance(
    name: str | None,
    operations: Sequence[_ShopOperation],
    edges: Sequence[tuple[str, str]],
    source: str,
    release: int = 0,
) -> Instance:
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


_MARKS = {
    "PRECEDENCE RELATIONS": "precedence",
    "REQUESTS/DURATIONS": "requests",
    "RESOURCEAVAILABILITIES": "availabilities",
    "RESOURCE AVAILABILITIES": "availabilities",
    "PROJECT INFORMATION": "project",
}


def _sections(lines: Lines) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of the sections that count, each with the section, without rules of stars and dashes."""
    section = ""
    for number, line in lines:
        text = line.strip()
        mark = next((name for start, name in _MARKS.items() if text.startswith(start)), None)
        if mark is not None:
            section = mark
        elif set(text) <= {"*"}:
            section = ""
        elif section and not set(text) <= {"-"}:
            yield section, number, text


_OTHERS = "other forms, as of time lags, skills, alternatives or several projects, are not read"


def _take_patterson(project: _Project, lines: Lines) -> None:
    """Take a project in Patterson's form, whose first line has two numbers and all others have nothing but numbers."""
    words = [(number, word) for number, line in lines for word in line.split()]
    head = [word for number, word in words if number == words[0][0]]
    if len(head) != 2 or not all(map(_WORD.fullmatch, head)):
        told = "is no project with a section PRECEDENCE RELATIONS (.sm), and none in Patterson's form (.rcp)"
        lines.add(None, told, _OTHERS, code="malformed")
        lines.raise_if_any()
    wrong = next((number for number, word in words if not _WORD.fullmatch(word)), None)
    if wrong is not None:
        lines.add(wrong, "holds more than whole numbers", _OTHERS, code="malformed")
        lines.raise_if_any()
    rest = ((number, int(word)) for number, word in words[2:])

    def following(count: int) -> list[int]:
        found = [value for _, value in islice(rest, max(count, 0))]
        if len(found) != count:
            lines.add(None, "has fewer numbers than its activities need", code="wrong-count")
            lines.raise_if_any()
        return found

    activities, resources = int(head[0]), int(head[1])
    project.capacities, project.where = following(resources), "the line of capacities"
    project.resources = [f"R {number}" for number in range(1, resources + 1)]
    for activity in range(1, activities + 1):
        duration, *demands = following(1 + resources)
        project.take_activity(activity, duration, demands, following(*following(1)), lines)
    if behind := [number for number, _ in rest]:
        lines.add(behind[0], "holds more than the activities that its first line counts", code="wrong-count")


@dataclass
class _Project:
    """What has been read of a project so far.

    Parameters
    ----------
    successors, durations, demands
        Of each activity.
    resources
        Names of the resources, as ``R 1``, in the order of columns.
    capacities
        Of each of them.
    machines
        Of each activity the resources that it has alone while it runs.
    release
        When the project may begin.
    where
        Where the capacities stand.
    """

    successors: dict[int, list[int]] = field(default_factory=dict)
    durations: dict[int, int] = field(default_factory=dict)
    demands: dict[int, Sequence[int]] = field(default_factory=dict)
    resources: list[str] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)
    machines: dict[int, tuple[str, ...]] = field(default_factory=dict)
    release: int = 0
    where: str = "RESOURCEAVAILABILITIES"
    _projects: int = 0
    _choices: list[tuple[int, str]] = field(default_factory=list)

    def take(self, section: str, number: int, line: str, lines: Lines) -> None:
        """Take a line of a section."""
        if line[0].isalpha():
            if section == "requests" and not self.demands:
                self.resources = [" ".join(it) for it in re.findall(r"\b([RND]) *([0-9]+)", line)]
                if len(set(self.resources)) < len(self.resources):
                    lines.add(number, "names a resource twice", code="duplicate-name")
            elif section == "requests":
                lines.add(number, "is a second line with names of resources", code="duplicate-name")
            return
        row = _numbers(lines, number, line)
        if row is not None:
            getattr(self, f"_{section}")(number, row, lines)

    def _project(self, number: int, row: Sequence[int], lines: Lines) -> None:
        self._projects += 1
        if self._projects > 1:
            lines.add(number, "is a second project, and one is read", code="does-not-fit")
        elif len(row) < 3 or not 0 <= row[2] <= _LARGEST:
            lines.add(number, "has no release date of at least 0 in its third column", code="malformed")
        else:
            self.release = row[2]

    def _precedence(self, number: int, row: Sequence[int], lines: Lines) -> None:
        if len(row) < 3 or row[2] != len(row) - 3:
            lines.add(number, "is not activity, modes, number of successors and successors", code="wrong-count")
        elif row[0] in self.successors:
            lines.add(number, f"is a second line of activity {row[0]}", code="duplicate-name")
        else:
            if row[1] != 1:
                self._choices.append((number, f"activity {row[0]}, among {row[1]}"))
            self.successors[row[0]] = list(dict.fromkeys(row[3:]))

    def _requests(self, number: int, row: Sequence[int], lines: Lines) -> None:
        if self._choices and len(row) != 3 + len(self.resources):
            return  # another mode of the activity above
        if len(row) != 3 + len(self.resources):
            told = f"is not activity, mode, duration and demands of {counted(len(self.resources), 'resource')}"
            lines.add(number, told, code="wrong-count")
            return
        if row[0] in self.durations:
            lines.add(number, f"is a second line of activity {row[0]}", code="duplicate-name")
        _require_time(lines, number, row[2], 0)
        if any(it < 0 for it in row[3:]):
            lines.add(number, "has a demand below 0", code="out-of-range")
        if row[2] == 0 and any(row[3:]):
            lines.add(number, "has demands and no duration", code="does-not-fit")
        self.durations[row[0]], self.demands[row[0]] = row[2], row[3:]

    def _availabilities(self, number: int, row: Sequence[int], lines: Lines) -> None:
        if self.capacities or len(row) != len(self.resources):
            told = f"is not the only line with capacities of {counted(len(self.resources), 'resource')}"
            lines.add(number, told, code="wrong-count")
        self.capacities = list(row)

    def take_activity(
        self, activity: int, duration: int, demands: Sequence[int], successors: Sequence[int], lines: Lines
    ) -> None:
        """Take an activity that has one mode and no line of its own."""
        if not 0 <= duration <= _LARGEST or any(it < 0 for it in demands):
            told = f"activity {activity} has a duration that is not from 0 to 10^12, or a demand below 0"
            lines.add(None, told, code="out-of-range")
        self.successors[activity] = list(dict.fromkeys(successors))
        self.durations[activity], self.demands[activity] = duration, demands

    def conclude(self, lines: Lines) -> None:
        """Report what is missing, and resources that are no machines; set `machines`."""
        sections: Mapping[str, Mapping[int, object]] = {
            "PRECEDENCE RELATIONS": self.successors,
            "REQUESTS/DURATIONS": self.durations,
        }
        one, several = "activity may choose its mode", "activities may choose their modes"
        _refuse_choices(lines, self._choices, f"{one} in PRECEDENCE RELATIONS", f"{several} in PRECEDENCE RELATIONS")
        for what, there in sections.items():
            if not there:
                lines.add(None, f"has no section {what}", code="missing-field")
        if all(sections.values()):
            for what, there in sections.items():
                for activity in sorted({*self.successors, *self.durations} - there.keys()):
                    lines.add(None, f"activity {activity} has no line in {what}", code="missing-field")
            for activity in sorted({it for row in self.successors.values() for it in row} - self.successors.keys()):
                lines.add(None, f"activity {activity} is a successor and has no line", code="unknown-name")
        if len(self.capacities) != len(self.resources):
            lines.add(None, "has no capacities in a section RESOURCEAVAILABILITIES", code="missing-field")
            return
        owned: dict[int, list[str]] = {it: [] for it in self.durations}
        unfit: dict[str, list[str]] = {}
        for column, (name, capacity) in enumerate(zip(self.resources, self.capacities, strict=True)):
            asked = {it: row[column] for it, row in self.demands.items() if row[column] > 0}
            if any(demand > capacity for demand in asked.values()) and name[0] == "R":
                told = f"resource {name} has less than one of its activities needs"
                lines.add(None, told, code="contradiction")
            elif reason := _unfit(name, sorted(asked.values()), capacity):
                unfit.setdefault(reason, []).append(f"{name} of {capacity}")
            elif sum(asked.values()) > capacity:
                for it in asked:
                    owned[it].append(name)
        for reason, names in unfit.items():
            of = f"resource{'s' * (len(names) > 1)} {', '.join(names)} in {self.where}"
            lines.add(None, f"{of}: {reason}", code="does-not-fit")
        self.machines = {it: tuple(names) for it, names in owned.items()}


def _unfit(name: str, demands: Sequence[int], capacity: int) -> str:
    """Return why a resource is no machine that serves one activity at a time; empty where it is, or never binds.

    Parameters
    ----------
    name
        Its name, which begins with R, N or D.
    demands
        What activities need of it, in ascending order, each above 0.
    capacity
        How much of it there is.
    """
    if demands and name[0] == "N":
        return "what activities take is used up, and GPUs are not"
    if demands and name[0] == "D":
        return "what activities take is renewed and used up, and GPUs are not"
    if sum(demands) > capacity and sum(demands[:2]) <= capacity:
        return "several activities may run at once, and a GPU runs one block"
    return ""


def _without_empty(
    tasks: Sequence[_ShopOperation], edges: Sequence[tuple[str, str]], source: str
) -> tuple[list[_ShopOperation], list[tuple[str, str]]]:
    """Leave out activities without a duration; what waits for one waits for all that it waits for."""
    after: dict[str, set[str]] = {it.name: set() for it in tasks}
    before: dict[str, set[str]] = {it.name: set() for it in tasks}
    for first, second in edges:
        after[first].add(second)
        before[second].add(first)
    for it in tasks:
        if it.time:
            continue
        sources, targets = before.pop(it.name), after.pop(it.name)
        if it.name in sources:
            raise InvalidInputError([Problem(source, f"activity {it.name} waits for itself", code="cycle")])
        for first in sources:
            after[first] = after[first] - {it.name} | targets
        for second in targets:
            before[second] = before[second] - {it.name} | sources
        if sum(map(len, after.values())) > _MOST_EDGES:
            told = f"waits add up to more than {_MOST_EDGES} without the activities of no duration"
            raise InvalidInputError([Problem(source, told, code="too-large")])
    kept = [it for it in tasks if it.time]
    return kept, [(it.name, target) for it in kept for target in sorted(after[it.name], key=int)]
