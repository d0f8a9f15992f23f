"""Projects of PSPLIB and of Patterson's form whose resources serve one activity at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from jigsaw_opt.documents.readers.lines import Lines
from jigsaw_opt.documents.readers.shops_parts import (
    LONGEST_US,
    WORD,
    ShopOperation,
    Tell,
    instance_of_shop,
    numbers_of,
    refuse_choices,
    require_time,
    say_nothing,
    without_empty,
)
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.text import agreeing, counted

__all__ = ["read_psplib"]


def read_psplib(data: bytes | str, source: str, name: str | None = None, tell: Tell = say_nothing) -> Instance:
    """Read a project of PSPLIB, or of Patterson's form, whose resources serve one activity at a time.

    Each activity has one mode.

    A resource that never binds, as all activities together fit, is left out. So are activities without a duration,
    which nothing is told of: they need no resource.

    `data, source, name, tell`: as those of `read_jsplib`; by default the name is that of the file.
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
    tasks = [ShopOperation(str(it), project.durations[it], project.machines[it]) for it in project.durations]
    edges = [(str(before), str(after)) for before, afters in project.successors.items() for after in afters]
    kept, edges = without_empty(tasks, edges, source)
    return instance_of_shop(name, kept, edges, source, project.release)


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
    if len(head) != 2 or not all(map(WORD.fullmatch, head)):
        told = "is no project with a section PRECEDENCE RELATIONS (.sm), and none in Patterson's form (.rcp)"
        lines.add(None, told, _OTHERS, code="malformed")
        lines.raise_if_any()
    wrong = next((number for number, word in words if not WORD.fullmatch(word)), None)
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

    `resources`: names of the resources, as ``R 1``, in the order of columns. `machines`: of each activity the resources
    that it has alone while it runs.
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
        row = numbers_of(lines, number, line)
        if row is not None:
            getattr(self, f"_{section}")(number, row, lines)

    def _project(self, number: int, row: Sequence[int], lines: Lines) -> None:
        self._projects += 1
        if self._projects > 1:
            lines.add(number, "is a second project, and one is read", code="does-not-fit")
        elif len(row) < 3 or not 0 <= row[2] <= LONGEST_US:
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
        require_time(lines, number, row[2])
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
        if not 0 <= duration <= LONGEST_US or any(it < 0 for it in demands):
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
        refuse_choices(lines, self._choices, f"{one} in PRECEDENCE RELATIONS", f"{several} in PRECEDENCE RELATIONS")
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
            of = f"{agreeing(len(names), 'resource', 'resources')} {', '.join(names)} in {self.where}"
            lines.add(None, f"{of}: {reason}", code="does-not-fit")
        self.machines = {it: tuple(names) for it, names in owned.items()}


def _unfit(name: str, demands: Sequence[int], capacity: int) -> str:
    """Return why a resource is no machine that serves one activity at a time; empty where it is, or never binds.

    `demands`: what activities need of it, in ascending order, each above 0.
    """
    if demands and name[0] == "N":
        return "what activities take is used up, and GPUs are not"
    if demands and name[0] == "D":
        return "what activities take is renewed and used up, and GPUs are not"
    if sum(demands) > capacity and sum(demands[:2]) <= capacity:
        return "several activities may run at once, and a GPU runs one block"
    return ""
