"""Records of ``sacct -P``, and what they request beyond numbers of GPUs.

Names and commands may hold bars and line breaks that nothing marks. Requests are types of GPU, other jobs that end
first, and tasks of an array; lists of nodes are written as in ``gpu[01-03,07],login``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations_with_replacement, product
from typing import Any

from jigsaw_opt.documents.readers.table import Row
from jigsaw_opt.documents.readers.tally import Tally
from jigsaw_opt.documents.readers.times import is_missing, moment_us
from jigsaw_opt.problem.gpu_types import matching_types

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


MOST_NODES = 10**5
"""The most nodes that a list names; Slurm itself has no more than 65 533."""
_LIST = re.compile(r"(?:[^,\[\]\s]|\[[0-9,-]+\])+")
_PART = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def nodes_of(text: str) -> tuple[str, ...] | None:
    """Return the names of the nodes in a list, each once; None where the text is no such list."""
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _LIST.match(text, at)
        names = None if match is None else _expanded(match[0])
        if match is None or names is None or len(found) + len(names) > MOST_NODES:
            return None
        found += names
        at = match.end() + 1
        if at <= len(text) and text[at - 1] != ",":
            return None
    return tuple(dict.fromkeys(found)) if found and not text.endswith(",") else None


def _expanded(text: str) -> list[str] | None:
    """Return the names that a text with ranges in brackets stands for; None where a range is none."""
    pieces = _PART.split(text)
    counts = [_numbers(piece) for piece in pieces[1::2]]
    most, ranges = 1, []
    for numbers in counts:
        if numbers is None:
            return None
        most *= len(numbers)
        if most > MOST_NODES:
            return None
        ranges.append(numbers)
    return ["".join(chain(*zip(pieces[::2], (*numbers, ""), strict=True))) for numbers in product(*ranges)]


def _numbers(text: str) -> list[str] | None:
    """Return the numbers of ``01-03,07``."""
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < MOST_NODES - len(found):
            return None
        found += (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    return found


_TYPED = re.compile(r"gres/gpu:(?P<type>[^=]+)")
_SHORT = {"d": "dependency", "b": "begin", "C": "constraint", "a": "array", "G": "gpus", "J": "job-name"}
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_FEATURE = re.compile(r"[A-Za-z0-9_.\-]+")
_LIMIT = re.compile(r"%([0-9]{1,9})")
_TASK = re.compile(r"(?P<array>[^_]+)_(?P<task>[0-9]+|\[.*\])")
_AFTER = re.compile(r"(?P<kind>after[a-z]*):(?P<jobs>[^,?]+)")
_NUMBER = re.compile(r"[0-9]+(?:_[0-9]+)?")
_ENDED = ("afterany", "afterok", "afternotok")
_HELD = "jobs that a time (--begin) or a reservation holds back, which are left out of waiting times"
_BY_PARTITION = "jobs that name no type of GPU, which are taken to need those on which jobs of their partition ran"


def types_in(resources: Iterable[str]) -> tuple[str, ...]:
    """Return the types of GPU among names of resources, as in ``gres/gpu:a100``, in small letters."""
    found = (match["type"].lower() for match in map(_TYPED.fullmatch, resources) if match)
    return tuple(dict.fromkeys(found))


def requests_of(
    name: str, row: Row, allocated: Iterable[str], requested: Iterable[str], tally: Tally
) -> dict[str, Any]:
    """Return what a record asks for, as fields of a job, with the features of its constraint under ``features``."""
    ran_on, asked = types_in(allocated), types_in(requested)
    options = dict(_options(row.optional_text(LAST)))
    asked = asked or tuple(_types_of_options(options))
    if len(asked) > 1 or len(ran_on) > 1:
        tally.remark("jobs with GPUs of several types at once, which here run on one of these types")
    constraint = options.get("constraint", "")
    if row.has("Constraints"):
        constraint = row.optional_text("Constraints") or constraint
    task = _TASK.fullmatch(name)
    limit = _LIMIT.search(name) or _LIMIT.search(options.get("array", ""))
    dependency = row.optional_text("Dependency") if row.has("Dependency") else options.get("dependency", "")
    held_by = "begin" if options.get("begin") and options["begin"] != "now" else None
    if options.get("reservation") or (row.has("Reservation") and not row.is_missing("Reservation")):
        held_by = "reservation"
    if held_by is not None:  # it waits although there is room for it
        tally.remark(_HELD)
    return {
        "nodes": nodes_of(row.optional_text("NodeList")),
        "held_by": held_by,
        "gpu_types": asked or None,
        "ran_on": ran_on[0] if len(ran_on) == 1 else None,
        "after": tuple(dict.fromkeys(_after(dependency, task, tally))) or None,
        "array": task["array"] if task else None,
        "array_limit": int(limit[1]) or None if task and limit else None,
        "features": tuple(_FEATURE.findall(constraint)),
        "singleton": _singleton(dependency, row.stated("JobName") or options.get("job-name"), row, tally),
    }


def wait_in_turn(
    found: Mapping[str, Mapping[str, Any]], in_order: Iterable[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield jobs that wait for earlier ones of their name and user (``singleton``), each with all that it waits for.

    A job that waits in turn stands for those before it, so that long queues need few names.

    `found`: what `requests_of` gives of each record that is a job, by the name of the record.
    """
    last: dict[object, list[str]] = {}
    for name in in_order:
        key, is_in_turn = found[name]["singleton"]
        if key is None:
            continue
        array, before = found[name]["array"], last.setdefault(key, [])
        if is_in_turn:
            yield (
                name,
                tuple(dict.fromkeys((*(found[name]["after"] or ()), *(other for other in before if other != array)))),
            )
            before[:] = [other for other in before if other == array]
        # One record may be of many tasks, as 7_[1-4]; the first component names a heterogeneous job.
        before.append(array if array and name.endswith("]") else name.partition("+")[0])


def settle_requests(found: Mapping[str, Mapping[str, Any]], tally: Tally) -> dict[str, dict[str, Any]]:
    """Settle what single records do not tell: features that are types, types of partitions, and limits of arrays.

    A feature counts as a type where some job of the trace ran on, or asks for, a type of that name. A job that names no
    type may run on the types on which jobs of its partition ran, as a partition is a set of nodes.

    `found`: what `requests_of` gives of each record that is a job, with its ``queue``, by the name of the record.
    """
    types = dict.fromkeys(name for one in found.values() for name in (one["ran_on"], *(one["gpu_types"] or ())) if name)
    limits = {one["array"]: one["array_limit"] for one in found.values() if one["array_limit"]}
    by_queue: dict[str, dict[str, None]] = {}
    for one in found.values():
        if one["ran_on"] and one["queue"]:
            by_queue.setdefault(one["queue"], {})[one["ran_on"]] = None
    settled = {}
    for name, one in found.items():
        asked = one["gpu_types"]
        if asked is None and one["features"]:
            asked = tuple(known for word in one["features"] for known in matching_types(word, types)) or None
            if asked is None:
                tally.remark("jobs with a constraint that names no type of GPU of the trace, which is not read")
        own = by_queue.get(one["queue"] or "", {})
        if asked is None and 0 < len(own) < len(types):
            asked = tuple(own)
            tally.remark(_BY_PARTITION)
        elif asked is None and len(types) > 1:
            tally.remark("jobs that name no type of GPU, which may run on any")
        settled[name] = {**one, "gpu_types": asked, "array_limit": limits.get(one["array"])}
        del settled[name]["features"], settled[name]["singleton"]
    return settled


def _options(line: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a command such as ``sbatch -d afterok:7 --gres=gpu:a100:2 job.sh``, up to its script."""
    try:
        words = shlex.split(line)[1:]
    except ValueError:  # of quotes that are not closed, as in a line that was cut off
        words = line.split()[1:]
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "--":
            return
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        else:
            name, equals, value = _SHORT.get(word[1:2], word[1:2]), word[2:3], word[2:].removeprefix("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield name, value


def _types_of_options(options: Mapping[str, str]) -> Iterator[str]:
    """Yield types as in ``--gres=gpu:a100:2`` or ``--gpus=a100:2``."""
    for part in options.get("gres", "").split(","):
        words = part.removeprefix("gres/").split(":")
        if words[0] == "gpu" and len(words) > 1 and not words[1].isdecimal():
            yield words[1].lower()
    for name in _GPU_OPTIONS:
        for part in options.get(name, "").split(","):
            kind, colon, _ = part.partition(":")
            if colon and kind:
                yield kind.lower()


def _singleton(text: str, job_name: str | None, row: Row, tally: Tally) -> tuple[tuple[str, str | None] | None, bool]:
    """Return the name and user of a job, where the name is known, and whether it waits for earlier ones of both."""
    is_in_turn = "singleton" in text.lower()
    if is_in_turn and job_name is None:
        tally.remark("dependencies of the kind singleton, which are not read without JobName")
    return (None if job_name is None else (job_name, row.stated("User"))), is_in_turn


def _after(text: str, task: re.Match[str] | None, tally: Tally) -> Iterator[str]:
    """Yield the jobs and arrays that must have ended, as in ``afterok:7:8,aftercorr:9``."""
    matches = list(_AFTER.finditer(text))
    for match in matches:
        names = _NUMBER.findall(match["jobs"])
        if match["kind"] in _ENDED:
            yield from names
        elif match["kind"] == "aftercorr" and task and task["task"].isdecimal():
            yield from (f"{name}_{task['task']}" for name in names)
        else:
            tally.remark(f"dependencies of the kind {match['kind'][:20]}, which are not read")
    if len(matches) > 1 and "?" in text:
        tally.remark("dependencies of which any one is enough, of which all are waited for here")
