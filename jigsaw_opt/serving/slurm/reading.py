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

from jigsaw_opt.documents.readers.slurm.reading import ENDED_STATES, tasks_of
from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.documents.readers.times import moment_us, slurm_time_s
from jigsaw_opt.serving.slurm import commands
from jigsaw_opt.serving.slurm.commands import COLUMNS, Command, Runner, SlurmError

_GPUS = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>(?![0-9]+(?:$|\())[^:=,()]+))?(?:[:=](?P<gpus>[0-9]{1,7}))?"
    r"(?:\(IDX:(?P<at>[0-9,-]+)\))?(?:\(.*\))?"
)
_BETWEEN = re.compile(r",(?![^(]*\))")
_TASK = re.compile(r"(?P<array>[0-9]+)_(?P<task>[0-9]+)")
_NONE = ("N/A", "(null)", "n/a", "None assigned", "UNLIMITED", "NONE")
_WAITS = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
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
        self._run, self._has_json = run, True

    def jobs(self, now_us: int) -> list[SlurmJob]:
        """Return all jobs that Slurm tells of."""
        text = self._json(commands.JOBS)
        return read_jobs_plain(self._run(commands.JOBS_PLAIN), now_us) if text is None else read_jobs(text, now_us)

    def nodes(self) -> list[SlurmNode]:
        """Return all nodes."""
        text = self._json(commands.NODES)
        return read_nodes_plain(self._run(commands.NODES_PLAIN)) if text is None else read_nodes(text)

    def _json(self, command: Command) -> str | None:
        """Return what a command prints; None where this version of Slurm prints no JSON."""
        try:
            return self._run(command) if self._has_json else None
        except SlurmError as error:
            if not any(words in str(error) for words in ("unrecognized option", "invalid option", "serializer")):
                raise
            self._has_json = False
            return None


def read_jobs(text: str, now_us: int) -> list[SlurmJob]:
    """Return the jobs that ``squeue --json`` prints; `now_us`: the time, for jobs that are to begin later."""
    return [job for row in _rows(text, "jobs") for job in _jobs_of(_from_json(row), now_us)]


def read_jobs_plain(text: str, now_us: int) -> list[SlurmJob]:
    """Return the jobs in the columns of `COLUMNS`."""
    rows = (dict(zip(COLUMNS, cells, strict=True)) for cells in _cells(text, "squeue", len(COLUMNS)))
    return [job for row in rows for job in _jobs_of(row, now_us)]


def read_nodes(text: str) -> list[SlurmNode]:
    """Return the nodes that ``sinfo --json`` prints: one a row, or in rows of nodes that are alike."""
    found: dict[str, SlurmNode] = {}
    for row in _rows(text, "nodes", "sinfo"):
        alike = row.get("node", row)
        words = f"{_plain(alike.get('state'))}+{_plain(row.get('state_flags'))}"
        gres = row["gres"]["total"] if "node" in row else row.get("gres") or ""
        for name in row["nodes"]["nodes"] if "node" in row else [row["name"]]:
            for one in nodes_of(str(name)) or ():
                found[one] = SlurmNode(one, str(gres), _node_state(words.upper().split("+")))
    return list(found.values())


def read_nodes_plain(text: str) -> list[SlurmNode]:
    """Return the nodes that ``sinfo -N -o '%N|%T|%G'`` prints; one of several partitions stands there several times."""
    found: dict[str, SlurmNode] = {}
    for names, told, gres in _cells(text, "sinfo", 3):
        marks = [_MARKS[sign] for sign in told if sign in _MARKS]
        state = _node_state([told.strip("*~#!%$@^-+").upper(), *marks])
        found |= {name: SlurmNode(name, gres, state) for name in nodes_of(names) or ()}
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


def _cells(text: str, program: str, columns: int) -> Iterator[list[str]]:
    """Yield the cells of each line; one that says that there is no value is empty, and the last one may hold bars."""
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.removesuffix("|").split("|", columns - 1)]
        if len(cells) != columns:
            raise SlurmError(f"{program} printed {len(cells)} columns, not {columns}: {line[:80]!r}")
        yield ["" if cell in _NONE else cell for cell in cells]


def _rows(text: str, *keys: str) -> list[dict[str, Any]]:
    """Return the objects of a list of JSON, which stands under one of these keys."""
    try:
        tree = json.loads(text)
        rows = tree[next((key for key in keys if key in tree), keys[0])]
    except (ValueError, KeyError, TypeError):
        raise SlurmError(f"Slurm printed no JSON with {keys[0]!r}: {text[:80]!r}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SlurmError(f"{keys[0]!r} of Slurm's JSON is no list of objects")
    return rows


def _from_json(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a job of JSON under the names of the plain columns, and those that only JSON has."""
    more = {"MaxNodes": "max_nodes", "ArrayLimit": "array_max_tasks", "tres-req": "tres_req_str"}
    found = {ours: _plain(row.get(theirs)) for ours, theirs in {**COLUMNS, **more}.items()}
    array, task, tasks = (_plain(row.get(f"array_{key}")) for key in ("job_id", "task_id", "task_string"))
    if array not in ("", "0"):
        found["JobArrayID"] = f"{array}_[{tasks}]" if tasks else f"{array}_{task}"
    if row.get("hold") is True:
        found["PriorityLong"] = "0"
    found["tres-alloc"] += "," + found["tres-req"]
    return {**found, "GRES": "|".join(map(str, row.get("gres_detail") or ()))}


def _plain(value: object) -> str:
    """Return a value of JSON as plain text has it: empty for none, several words with plus signs between."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, list):
        return "+".join(map(str, value))
    return "" if value is None else str(int(value) if isinstance(value, bool) else value)


def _jobs_of(values: Mapping[str, str], now_us: int) -> Iterator[SlurmJob]:
    """Yield the job of a record, or each task that has not started where they stand in one record."""
    words = frozenset(values["State"].upper().split("+"))
    state = "runs"
    if "COMPLETING" not in words:
        state = "waits" if words & _WAITS else "ended" if not words.isdisjoint(ENDED_STATES) else "runs"
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
        numbers = [int(k) for match in matches if match["at"] for k in nodes_of(f"[{match['at']}]") or ()]
        if numbers:
            found[node] = tuple(numbers)
    return found


def _moment(text: str) -> int | None:
    """Return a time in microseconds since 1970; None for none."""
    found = None if text in ("", "0") else moment_us(text)
    return None if found is None else found.time_us


def _limit_us(text: str) -> int | None:
    """Return a time limit, of which a number alone tells minutes; None for none."""
    return (slurm_time_s(text) or 0) * 1_000_000 or None


def _node_state(words: Iterable[str]) -> str:
    """Return ``down``, ``closed`` or ``up``, of the words of a state."""
    told = [word.upper() for word in words]
    if any(word.startswith(_OUT) for word in told):
        return "down"
    return "closed" if any(word.startswith(("DRNG", "DRAIN", *_CLOSED)) for word in told) else "up"
