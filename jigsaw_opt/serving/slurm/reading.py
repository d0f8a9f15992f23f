"""Jobs and nodes as Slurm tells them: the JSON of ``squeue`` and ``sinfo``, from version 22.05 on, and ``sacct``.

Numbers are plain or ``{"set": true, "number": 7}``, states are a word or a list of words, and nodes stand under
``nodes`` or, with others alike, under ``sinfo``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from jigsaw_opt.documents.readers.slurm.reading import ENDED_STATES, tasks_of
from jigsaw_opt.documents.readers.slurm.records import nodes_of
from jigsaw_opt.errors import InvalidInputError, JigsawError
from jigsaw_opt.serving.slurm.commands import SlurmError, require_node
from jigsaw_opt.simulation.inputs.cluster_files import read_sinfo

Read = TypeVar("Read")

_GPUS = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>(?![0-9]+(?:$|\())[^:=,()]+))?(?:[:=](?P<gpus>[0-9]{1,7}))?"
    r"(?:\(IDX:(?P<at>[0-9,-]+)\))?(?:\(.*\))?"
)
_BETWEEN = re.compile(r",(?![^(]*\))")
_NUMBER = re.compile(r"(?:(?P<array>[0-9]{1,10})_)?[0-9]{1,10}")
"""The number of a job or of a task that commands take."""
_WAITS = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_OUT = ("DOWN", "FAIL", "ERROR", "UNKNOWN", "INVAL", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWERING_DOWN")
_CLOSED = ("DRAIN", "MAINT", "RESERVED", "FUTURE", "PLANNED_DOWN", "REBOOT")
_LATER = ("Dependency", "BeginTime")
_OWNER = {"user": "user_name", "account": "account", "qos": "qos"}


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
    """A node: its generic resources, empty without GPUs, and whether it is ``up``, ``closed`` to jobs, or ``down``."""

    name: str
    gres: str
    state: str


def read_jobs(text: str, now_us: int, wrong: dict[str, str] | None = None) -> list[SlurmJob]:
    """Return the jobs that ``squeue --json`` prints, in order of submission.

    `now_us`: the time, for jobs that are to begin later. `wrong`: takes why jobs are left out, by number, without that
    of the task.
    """
    found = _read_each(_rows(text, "jobs"), lambda row: _jobs_of(row, now_us), {} if wrong is None else wrong)
    return sorted(found, key=lambda job: [int(number) for number in re.findall("[0-9]+", job.name)])


def read_nodes(text: str, wrong: dict[str, str] | None = None) -> list[SlurmNode]:
    """Return the nodes that ``sinfo --json`` prints: one a row, or in rows of nodes that are alike.

    `wrong`: takes why nodes are left out, by name.
    """
    rows = _rows(text, "nodes", "sinfo")
    found = _read_each(rows, _nodes_of, {} if wrong is None else wrong)
    return list({node.name: node for node in found}.values())


def _read_each(
    rows: Iterable[dict[str, Any]], read: Callable[[dict[str, Any]], Iterable[Read]], wrong: dict[str, str]
) -> list[Read]:
    """Return what is read of each object; those that cannot be read are left out, and `wrong` takes why."""
    found: list[Read] = []
    for row in rows:
        try:
            found += read(row)
        except (JigsawError, ValueError, LookupError, TypeError, AttributeError) as error:
            given = [row.get(key) for key in ("array_job_id", "job_id", "name")]
            numbers = [one.get("number") if isinstance(one, dict) else one for one in given]
            why = str(error)[:200] if isinstance(error, JigsawError) else f"cannot be read ({type(error).__name__})"
            wrong[str(next(filter(None, numbers), "a row"))[:80]] = why
    return found


def _nodes_of(row: dict[str, Any]) -> list[SlurmNode]:
    """Return the nodes of a record; raise where their GPUs or a name cannot be read."""
    alike = row.get("node", row)
    words = f"{_text(alike, 'state')}+{_text(row, 'state_flags')}"
    gres = str(row["gres"]["total"] if "node" in row else row.get("gres") or "")
    told = gres if _has_gpus(gres) else ""
    names = row["nodes"]["nodes"] if "node" in row else [row["name"]]
    found = [one for name in names for one in nodes_of(str(name)) or (str(name),)]
    return [SlurmNode(require_node(one), told, _node_state(words.upper().split("+"))) for one in found]


@lru_cache(maxsize=1024)
def _has_gpus(gres: str) -> bool:
    """Return whether generic resources have GPUs; raise where they cannot be read."""
    try:
        return read_sinfo(f"node|{gres}\n", "sinfo").gpu_count > 0
    except InvalidInputError as error:
        if error.problems[0].code == "empty":
            return False
        raise


def read_ended(text: str, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Return jobs that have ended, as ``sacct`` tells with the columns JobID, State, Start and End.

    `text`: what it prints; of jobs that it does not name nobody knows how they ended.
    """
    told = {cells[0]: cells[1:] for cells in (line.split("|") for line in text.splitlines()) if len(cells) == 4}
    found: list[SlurmJob] = []
    for job in jobs:
        state, *times = told.get(job.name, ("UNKNOWN", "", ""))
        start_us, end_us = (int(one) * 1_000_000 if one.isdecimal() else None for one in times)
        found.append(replace(job, state="ended", told=state, start_us=start_us or job.start_us, end_us=end_us))
    return found


def _rows(text: str, *keys: str) -> list[dict[str, Any]]:
    """Return the objects of a list of JSON, which stands under one of these keys."""
    try:
        tree = json.loads(text)
        rows = tree[next((key for key in keys if key in tree), keys[0])]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SlurmError(f"Slurm printed no JSON with {keys[0]!r}: {text[:80]!r}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SlurmError(f"{keys[0]!r} of Slurm's JSON is no list of objects")
    return rows


def _text(row: Mapping[str, Any], key: str) -> str:
    """Return a text, empty for none; of several words they have plus signs between them."""
    value = row.get(key)
    return "+".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _number(row: Mapping[str, Any], key: str) -> int | None:
    """Return a number; None where it is not set, or infinite."""
    value = row.get(key)
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return int(str(value)) if str(value).isdecimal() else None


def _time_us(row: Mapping[str, Any], key: str, unit_us: int = 1_000_000) -> int | None:
    """Return a time in microseconds; None for none."""
    return (_number(row, key) or 0) * unit_us or None


def _jobs_of(row: Mapping[str, Any], now_us: int) -> Iterator[SlurmJob]:
    """Yield the job of a record, or each task that has not started where they stand in one record."""
    told, reason, array = _text(row, "job_state"), _text(row, "state_reason"), _number(row, "array_job_id")
    words, state = frozenset(told.upper().split("+")), "runs"
    if "COMPLETING" not in words:
        state = "waits" if words & _WAITS else "ended" if not words.isdisjoint(ENDED_STATES) else "runs"
    least = _number(row, "node_count") or 1
    gpus, per_node, types = _asked(row, least)
    start_us, is_on_hold = _time_us(row, "start_time"), row.get("hold") is True or "REQUEUE_HOLD" in words
    held = is_on_hold or _number(row, "priority") == 0 or reason.startswith("JobHeld")
    nodes, wanted = (nodes_of(_text(row, key)) or () for key in ("nodes", "required_nodes"))
    number = str(_number(row, "job_id"))
    if array:
        tasks = _text(row, "array_task_string")
        number = f"{array}_[{tasks}]" if tasks else f"{array}_{_number(row, 'array_task_id')}"
    for name in tasks_of(number):
        number_of = _NUMBER.fullmatch(name)
        strange = "" if number_of else "its number cannot be read"
        yield SlurmJob(
            name,
            state,
            told,
            gpus,
            least,
            _number(row, "max_nodes") or None,
            per_node,
            types,
            held=state == "waits" and held,
            # The start of a held job is the time before which it may not begin, of others what Slurm expects.
            ready=not (_text(row, "dependency") or reason in _LATER or (held and (start_us or 0) > now_us)),
            submit_us=_time_us(row, "submit_time") or 0,
            start_us=start_us if state != "waits" else None,
            end_us=_time_us(row, "end_time") if state == "ended" else None,
            limit_us=_time_us(row, "time_limit", 60_000_000),
            nodes=nodes if state != "waits" else (),
            indices=_indices(nodes, row.get("gres_detail") or ()),
            wanted=wanted,
            requeue=bool(row.get("requeue")),
            partition=_text(row, "partition"),
            comment=_text(row, "comment"),
            array=number_of["array"] if number_of else None,
            array_limit=_number(row, "array_max_tasks") or None,
            owner={key: _text(row, theirs) for key, theirs in _OWNER.items() if row.get(theirs)},
            strange="it has several components" if _number(row, "het_job_id") else strange,
        )


def _asked(row: Mapping[str, Any], nodes: int) -> tuple[int, int | None, tuple[str, ...]]:
    """Return GPUs in all, GPUs of each node where they are stated, and their types."""
    total, types = _gpus(f"{_text(row, 'tres_alloc_str')},{_text(row, 'tres_req_str')}")
    for key, times in (("job", 1), ("task", _number(row, "tasks") or 1), ("node", nodes)):
        own, own_types = _gpus(_text(row, f"tres_per_{key}"))
        total, types = total or own * times, types or own_types
        if key == "node" and own:
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


def _indices(nodes: Iterable[str], details: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the GPUs of each node, of ``gpu:2(IDX:0-1)`` and ``gpu:1(IDX:3)``."""
    found: dict[str, tuple[int, ...]] = {}
    for node, told in zip(nodes, details, strict=False):
        matches = filter(None, map(_GPUS.fullmatch, _BETWEEN.split(told)))
        numbers = [int(k) for match in matches if match["at"] for k in nodes_of(f"[{match['at']}]") or ()]
        if numbers:
            found[node] = tuple(numbers)
    return found


def _node_state(words: Iterable[str]) -> str:
    """Return ``down``, ``closed`` or ``up``, of the words of a state."""
    told = [word.upper() for word in words]
    if any(word.startswith(_OUT) for word in told):
        return "down"
    return "closed" if any(word.startswith(("DRNG", "DRAIN", *_CLOSED)) for word in told) else "up"
