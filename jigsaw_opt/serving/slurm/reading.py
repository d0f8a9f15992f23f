"""Jobs and nodes as Slurm tells them now: ``squeue`` and ``sinfo``, as JSON or, of early versions, as plain text.

JSON is read as versions from 22.05 on print it: numbers are plain or ``{"set": true, "number": 7}``, states are a word
or a list of words, and nodes stand under ``nodes`` or, with others alike, under ``sinfo``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jigsaw_opt.documents.readers.slurm.reading import tasks_of
from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.documents.readers.times import duration_us, moment_us, slurm_time_s
from jigsaw_opt.serving.slurm.commands import COLUMNS, JOBS, JOBS_PLAIN, NODES, NODES_PLAIN, Runner, SlurmError

_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_GPUS = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>(?![0-9]+(?:$|\())[^:=,()]+))?(?:[:=](?P<gpus>[0-9]{1,7}))?(?:\(IDX:(?P<at>[0-9,-]+)\))?(?:\(.*\))?"
)
_BETWEEN = re.compile(r",(?![^(]*\))")
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_TASK = re.compile(r"(?P<array>[0-9]+)_(?P<task>[0-9]+)")
_WAITS = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_ENDS = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("REVOKED", "TIMEOUT", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    )
)
_OUT = ("DOWN", "FAIL", "ERROR", "UNKNOWN", "INVAL", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWERING_DOWN")
_CLOSED = ("DRAIN", "MAINT", "RESERVED", "FUTURE", "PLANNED_DOWN", "REBOOT")
_MARKS = {"*": "NOT_RESPONDING", "$": "MAINT", "@": "REBOOT"}
"""What the last sign of a state in plain text means; the others are of nodes that save power, which Slurm wakes."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, or a task of an array, as Slurm has it now; times are in microseconds since 1970.

    `name`: its number, as in ``7`` or ``7_3``. `state`: ``waits``, ``runs`` (it holds its nodes) or ``ended``. `told`:
    the state in Slurm's words. `gpus`: how many it asks for. `least_nodes, most_nodes, per_node`: on how many nodes,
    and with how many GPUs of each, where it says so. `types`: of GPU that it names. `held, ready`: whether it is held,
    and whether nothing else than that, as a dependency, keeps it from running. `nodes, indices`: where it runs, and the
    numbers of its GPUs on each node, where Slurm tells them. `wanted`: the nodes that it must run on. `requeue`:
    whether it may be stopped and run again. `array, array_limit`: the array that it is a task of, and at most how many
    of its tasks run at a time. `owner`: user, account and QOS, by the field of a job. `strange`: why it is left to
    Slurm whatever it asks for; empty where nothing speaks against it.
    """

    name: str
    state: str
    told: str
    gpus: int
    least_nodes: int = 1
    most_nodes: int | None = None
    per_node: int | None = None
    types: tuple[str, ...] = ()
    held: bool = False
    ready: bool = True
    submit_us: int = 0
    start_us: int | None = None
    end_us: int | None = None
    limit_us: int | None = None
    nodes: tuple[str, ...] = ()
    indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()
    requeue: bool = False
    restarts: int = 0
    partition: str = ""
    comment: str = ""
    array: str | None = None
    array_limit: int | None = None
    owner: Mapping[str, Any] = field(default_factory=dict)
    strange: str = ""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node: its generic resources, and whether it takes jobs: ``up``, ``closed`` to new ones, or ``down``."""

    name: str
    gres: str
    state: str


class SlurmReader:
    """Asks Slurm for its jobs and nodes: as JSON, or as plain text from the first time on that there is no JSON."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._has_json = True

    def jobs(self, now_us: int) -> list[SlurmJob]:
        """Return all jobs that Slurm tells of."""
        if self._has_json:
            try:
                return read_jobs(self._run(JOBS), now_us)
            except SlurmError as error:
                self._require_no_json(error)
        return read_jobs_plain(self._run(JOBS_PLAIN), now_us)

    def nodes(self) -> list[SlurmNode]:
        """Return all nodes."""
        if self._has_json:
            try:
                return read_nodes(self._run(NODES))
            except SlurmError as error:
                self._require_no_json(error)
        return read_nodes_plain(self._run(NODES_PLAIN))

    def _require_no_json(self, error: SlurmError) -> None:
        """Raise an error unless it says that this version prints no JSON."""
        if not any(words in str(error) for words in ("unrecognized option", "invalid option", "serializer")):
            raise error
        self._has_json = False


def read_jobs(text: str, now_us: int) -> list[SlurmJob]:
    """Return the jobs that ``squeue --json`` prints; `now_us`: the time, for jobs that are to begin later."""
    return [job for row in _rows(text, "jobs") for job in _jobs_of(dict(_from_json(row)), now_us)]


def read_jobs_plain(text: str, now_us: int) -> list[SlurmJob]:
    """Return the jobs in the columns of `COLUMNS`."""
    found: list[SlurmJob] = []
    for line in text.splitlines():
        cells = line.split("|", len(COLUMNS) - 1)
        if len(cells) == len(COLUMNS):
            values = dict(zip(COLUMNS, (cell.strip() for cell in cells), strict=True))
            values["Comment"] = values["Comment"].removesuffix("|")
            found += _jobs_of({name: "" if _is_none(value) else value for name, value in values.items()}, now_us)
        elif line.strip():
            raise SlurmError(f"squeue printed {len(cells)} columns, not {len(COLUMNS)}: {line[:80]!r}")
    return found


def read_nodes(text: str) -> list[SlurmNode]:
    """Return the nodes that ``sinfo --json`` prints."""
    try:
        tree = json.loads(text)
    except ValueError:
        raise SlurmError(f"sinfo printed no JSON: {text[:80]!r}") from None
    found: dict[str, SlurmNode] = {}
    if isinstance(tree, dict) and "sinfo" in tree:
        for row in _rows(text, "sinfo"):
            for name in row["nodes"]["nodes"]:
                for one in nodes_of(str(name)) or ():
                    found[one] = SlurmNode(one, str(row["gres"]["total"]), _node_state(_words(row["node"]["state"])))
        return list(found.values())
    for row in _rows(text, "nodes"):
        words = [*_words(row.get("state")), *_words(row.get("state_flags"))]
        found[row["name"]] = SlurmNode(str(row["name"]), str(row.get("gres") or ""), _node_state(words))
    return list(found.values())


def read_nodes_plain(text: str) -> list[SlurmNode]:
    """Return the nodes that ``sinfo -N -o '%N|%T|%G'`` prints; one of several partitions stands there several times."""
    found: dict[str, SlurmNode] = {}
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 3:
            raise SlurmError(f"sinfo printed {len(cells)} columns, not 3: {line[:80]!r}")
        marks = [_MARKS[sign] for sign in cells[1] if sign in _MARKS]
        state = _node_state([cells[1].strip("*~#!%$@^-+").upper(), *marks])
        for name in nodes_of(cells[0]) or ():
            found[name] = SlurmNode(name, cells[2], state)
    return list(found.values())


def read_ended(text: str, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Return jobs that have ended, as ``sacct`` tells with the columns JobID, State, Submit, Start and End.

    `text`: what it prints; empty where there is no accounting, and then nobody knows how they ended.
    """
    told = {cells[0]: cells for cells in (line.split("|") for line in text.splitlines()) if len(cells) == 5}
    found: list[SlurmJob] = []
    for job in jobs:
        _, state, _, start, end = told.get(job.name, ("", "UNKNOWN", "", "", ""))
        start_us = _moment(start) or job.start_us
        found.append(replace(job, state="ended", told=state, start_us=start_us, end_us=_moment(end)))
    return found


def _rows(text: str, key: str) -> list[dict[str, Any]]:
    """Return the objects of a list of JSON."""
    try:
        rows = json.loads(text)[key]
    except (ValueError, KeyError, TypeError):
        raise SlurmError(f"Slurm printed no JSON with {key!r}: {text[:80]!r}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SlurmError(f"{key!r} of Slurm's JSON is no list of objects")
    return rows


def _from_json(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the values of a job of JSON under the names of the plain columns."""

    def number(key: str) -> str:
        value = row.get(key)
        if isinstance(value, dict):
            value = value.get("number") if value.get("set") and not value.get("infinite") else None
        return "" if value is None else str(value)

    array, task, tasks = number("array_job_id"), number("array_task_id"), str(row.get("array_task_string") or "")
    name = f"{array}_{task}" if task and array not in ("", "0") else number("job_id")
    yield "JobArrayID", f"{array}_[{tasks}]" if tasks and array not in ("", "0") else name
    yield "ArrayLimit", number("array_max_tasks")
    yield "State", "+".join(_words(row.get("job_state")))
    yield "PriorityLong", "0" if row.get("hold") is True else number("priority")
    resources = row.get("job_resources")
    yield "NodeList", str(row.get("nodes") or (resources.get("nodes") if isinstance(resources, dict) else "") or "")
    yield "Requeue", "1" if row.get("requeue") in (True, 1) else "0"
    yield "TimeLimit", number("time_limit")
    yield "GRES", "|".join(map(str, row.get("gres_detail") or ()))
    yield "tres-alloc", str(row.get("tres_alloc_str") or "") + "," + str(row.get("tres_req_str") or "")
    numbers = {"NumNodes": "node_count", "NumTasks": "tasks", "RestartCnt": "restart_cnt", "HetJobID": "het_job_id"}
    numbers |= {"MaxNodes": "max_nodes", "SubmitTime": "submit_time", "StartTime": "start_time", "EndTime": "end_time"}
    yield from ((ours, number(theirs)) for ours, theirs in numbers.items())
    texts = {"Reason": "state_reason", "tres-per-job": "tres_per_job", "tres-per-node": "tres_per_node"}
    texts |= {"tres-per-task": "tres_per_task", "ReqNodes": "required_nodes", "Dependency": "dependency"}
    texts |= {"Partition": "partition", "UserName": "user_name", "Account": "account", "QOS": "qos"}
    yield from ((ours, str(row.get(theirs) or "")) for ours, theirs in {**texts, "Comment": "comment"}.items())


def _jobs_of(values: Mapping[str, str], now_us: int) -> Iterator[SlurmJob]:
    """Yield the job of a record, or each task that has not started where they stand in one record."""
    words = frozenset(values["State"].upper().split("+"))
    state = "runs"
    if "COMPLETING" not in words:
        state = "waits" if words & _WAITS else "ended" if words & _ENDS else "runs"
    least = int(values["NumNodes"].partition("-")[0] or 1)
    gpus, per_node, types = _asked(values, least)
    start_us, reason = _moment(values["StartTime"]), values["Reason"]
    held = values["PriorityLong"] == "0" or reason.startswith("JobHeld") or bool(words & {"REQUEUE_HOLD"})
    nodes, wanted = (nodes_of(values[key]) or () for key in ("NodeList", "ReqNodes"))
    limit = values.get("ArrayLimit") or values["JobArrayID"].partition("%")[2].strip("]")
    for name in tasks_of(values["JobArrayID"]):
        task = _TASK.fullmatch(name)
        strange = "" if task or name.isdecimal() else "its number cannot be read"
        yield SlurmJob(
            name,
            state,
            values["State"],
            gpus,
            least,
            int(values.get("MaxNodes") or 0) or None,
            per_node,
            types,
            held=state == "waits" and held,
            # The start of a held job is the time before which it may not begin, of others what Slurm expects.
            ready=not (values["Dependency"] or reason in _LATER or (held and (start_us or 0) > now_us)),
            submit_us=_moment(values["SubmitTime"]) or 0,
            start_us=start_us if state != "waits" else None,
            end_us=_moment(values["EndTime"]) if state == "ended" else None,
            limit_us=_limit_us(values["TimeLimit"]),
            nodes=nodes if state != "waits" else (),
            indices=_indices(nodes, values.get("GRES", "")),
            wanted=wanted,
            requeue=values["Requeue"] == "1",
            restarts=int(values["RestartCnt"] or 0),
            partition=values["Partition"],
            comment=values["Comment"],
            array=task["array"] if task else None,
            array_limit=int(limit) or None if limit.isdecimal() else None,
            owner={key: values[column] for key, column in _OWNER.items() if values[column]},
            strange="it has several components" if values["HetJobID"] not in ("", "0") else strange,
        )


_LATER = ("Dependency", "BeginTime")
_OWNER = {"user": "UserName", "account": "Account", "qos": "QOS"}


def _asked(values: Mapping[str, str], nodes: int) -> tuple[int, int | None, tuple[str, ...]]:
    """Return GPUs in all, GPUs of each node where they are stated, and their types."""
    total, types = _gpus(values["tres-alloc"])
    for key, times in (("tres-per-job", 1), ("tres-per-task", int(values["NumTasks"] or 1)), ("tres-per-node", nodes)):
        own, own_types = _gpus(values[key])
        total, types = total or own * times, types or own_types
        if key == "tres-per-node" and own:
            return total, own, types
    return total, None, types


def _gpus(text: str) -> tuple[int, tuple[str, ...]]:
    """Return the GPUs that a text states, as ``gres/gpu:a100=4`` or ``gres:gpu:2``, and their types."""
    found: dict[str, int] = {}
    for part in _BETWEEN.split(text):
        if match := _GPUS.fullmatch(part.strip()):
            found.setdefault((match["type"] or "").lower(), int(match["gpus"] or 1))
    types = tuple(name for name in found if name)
    return found.get("") or sum(found.values()), types


def _indices(nodes: Iterable[str], text: str) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the GPUs of each node, of ``gpu:2(IDX:0-1)|gpu:1(IDX:3)``."""
    found: dict[str, tuple[int, ...]] = {}
    for node, told in zip(nodes, text.split("|") if text else (), strict=False):
        matches = filter(None, map(_GPUS.fullmatch, _BETWEEN.split(told)))
        ranges = (_RANGE.fullmatch(part) for match in matches if match["at"] for part in match["at"].split(","))
        numbers = [k for one in ranges if one for k in range(int(one[1]), int(one[2] or one[1]) + 1)]
        if numbers:
            found[node] = tuple(numbers)
    return found


def _moment(text: str) -> int | None:
    """Return a time in microseconds since 1970; None for none."""
    found = None if text in ("", "0") else moment_us(text)
    return None if found is None else found.time_us


def _limit_us(text: str) -> int | None:
    """Return a time limit: minutes of JSON, or as plain text has it; None for none."""
    if text.isdecimal():
        return int(text) * _MINUTE_US or None
    seconds = slurm_time_s(text)
    return duration_us(text) if seconds is None else seconds * _SECOND_US


def _node_state(words: Iterable[str]) -> str:
    """Return ``down``, ``closed`` or ``up``, of the words of a state."""
    told = [word.upper() for word in words]
    if any(word.startswith(_OUT) for word in told):
        return "down"
    return "closed" if any(word.startswith(("DRNG", "DRAIN", *_CLOSED)) for word in told) else "up"


def _words(value: object) -> list[str]:
    """Return the words of a state, which is a word or a list of them."""
    return [str(word) for word in value] if isinstance(value, list) else [str(value)] if value else []


def _is_none(text: str) -> bool:
    return text in ("N/A", "(null)", "n/a", "None assigned", "UNLIMITED", "NONE")
