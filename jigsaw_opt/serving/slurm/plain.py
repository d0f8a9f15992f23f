"""Slurm that prints no JSON: the plain text of ``squeue`` and ``sinfo`` becomes the JSON that later versions print."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jigsaw_opt.documents.readers.times import slurm_time_s
from jigsaw_opt.serving.slurm.commands import JOBS, NODES, Command, Runner, SlurmError

_PAIRS = (
    "JobArrayID=job_id State=job_state Reason=state_reason PriorityLong=priority NumNodes=node_count NumTasks=tasks"
    " tres-alloc=tres_alloc_str tres-per-job=tres_per_job tres-per-node=tres_per_node tres-per-task=tres_per_task"
    " NodeList=nodes ReqNodes=required_nodes Requeue=requeue SubmitTime=submit_time StartTime=start_time"
    " EndTime=end_time TimeLimit=time_limit Dependency=dependency HetJobID=het_job_id Partition=partition"
    " UserName=user_name Account=account QOS=qos Comment=comment"
)
_COLUMNS: Mapping[str, str] = dict(pair.split("=") for pair in _PAIRS.split())
"""Columns of jobs in plain text, with the key of JSON of each; a comment may hold bars, so it is the last."""
JOBS_PLAIN: Command = (*JOBS[:-1], "--noheader", "-O", ",".join(f"{column}:|" for column in _COLUMNS))
NODES_PLAIN: Command = ("sinfo", "--all", "--Node", "--noheader", "-o", "%N|%T|%G")
_NO_JSON = ("unrecognized option", "invalid option", "serializer")
_NONE = ("N/A", "(null)", "n/a", "None assigned", "UNLIMITED", "NONE")
_ARRAY = re.compile(r"(?P<array>[0-9]+)_(?:\[(?P<tasks>[^]%]*)(?:%(?P<limit>[0-9]+))?\]|(?P<task>[0-9]+))")
_MARKS = {"*": "NOT_RESPONDING", "$": "MAINT", "@": "REBOOT"}
"""What the last sign of a state in plain text means; the others are of nodes that save power, which Slurm wakes."""


class AnySlurm:
    """Runs commands of Slurm of any version: where it prints no JSON, its plain text comes as JSON.

    `run`: runs the commands.
    """

    def __init__(self, run: Runner) -> None:
        self._run, self._has_json = run, True

    def __call__(self, command: Command) -> str:
        """Return what a command prints; after the first refusal of JSON only plain text is asked for."""
        if command not in (JOBS, NODES):
            return self._run(command)
        if self._has_json:
            try:
                return self._run(command)
            except SlurmError as error:
                if not any(words in str(error) for words in _NO_JSON):
                    raise
                self._has_json = False
        if command == JOBS:
            return json.dumps({"jobs": [_job(row) for row in _rows(self._run(JOBS_PLAIN), _COLUMNS.values())]})
        return json.dumps({"nodes": [_node(row) for row in _rows(self._run(NODES_PLAIN), ("name", "state", "gres"))]})


def _rows(text: str, keys: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the cells of each line by key; a cell that says that there is no value is empty."""
    for line in filter(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.removesuffix("|").split("|", len(keys) - 1)]
        if len(cells) != len(keys):
            raise SlurmError(f"Slurm printed {len(cells)} columns, not {len(keys)}: {line[:80]!r}")
        yield {key: "" if cell in _NONE else cell for key, cell in zip(keys, cells, strict=True)}


def _job(row: dict[str, Any]) -> dict[str, Any]:
    """Return a job with what plain text writes otherwise than JSON: arrays, ranges of nodes, and times."""
    if array := _ARRAY.fullmatch(row["job_id"]):
        row |= {"array_job_id": array["array"], "array_task_id": array["task"], "array_max_tasks": array["limit"]}
        row |= {"array_task_string": array["tasks"]}
    for key in ("submit_time", "start_time", "end_time"):
        if not row[key].isdecimal() and row[key]:
            raise SlurmError(f"Slurm printed a time that is no number of seconds: {row[key][:40]!r}")
    minutes, least = (slurm_time_s(row["time_limit"]) or 0) // 60, row["node_count"].partition("-")[0]
    return {**row, "time_limit": minutes, "node_count": least, "requeue": row["requeue"] == "1"}


def _node(row: dict[str, Any]) -> dict[str, Any]:
    """Return a node, or several that are alike, with the signs behind its state as flags."""
    told = row["state"]
    return {**row, "state": told.strip("*~#!%$@^-+"), "state_flags": [_MARKS[sign] for sign in told if sign in _MARKS]}
