"""Runs every case by every arm, each solve in a process of its own, and keeps a row of each."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import timed

from jigsaw_opt.sweeps.record import Record
from paired.arms import Arm
from paired.cases import Case

Row = Mapping[str, Any]
Pair = tuple[Row, Row]
"""The row of the first arm, and that of another one on the same case."""

_SCRIPT = Path(__file__).with_name("solve_one.py")
_GRACE_SECONDS = 60.0


def run(
    cases: Sequence[Case], arms: Sequence[Arm], output: Path, progress: Callable[[str], None]
) -> dict[Arm, list[Pair]]:
    """Pairs of the first arm with each of the others, in the order of the cases; only what has no row yet is solved.

    Arms take turns at going first, unless what the first one does decides which others matter.
    """
    with Record(output / "rows.jsonl") as record:
        for number, case in enumerate(cases):
            for arm in _turned(arms, number):
                if _matters(record, arms, arm, case, output):
                    _row(record, arm, case, output)
            progress(f"[{number + 1}/{len(cases)}] {case.instance.name}, seed {case.seed}, {case.limit}")
        return {arm: [*_pairs(record, arms[0], arm, cases)] for arm in arms[1:]}


def warm_up(arms: Sequence[Arm], cases: Sequence[Case], seconds: float, output: Path) -> None:
    """Search for some seconds by every tree, so that its functions are compiled and on disk before it is measured.

    One case after the other, for a search may end early by a proof.
    """
    for arm in {arm.tree: arm for arm in arms}.values():
        end = time.monotonic() + seconds
        for case in cases:
            left = end - time.monotonic()
            if left > 0:
                _answer(arm, replace(case, solver="search", time_limit=left, work_limit=None), output)


def _turned(arms: Sequence[Arm], number: int) -> list[Arm]:
    turn = number % len(arms)
    return [*arms[turn:], *arms[:turn]]


def _matters(record: Record, arms: Sequence[Arm], arm: Arm, case: Case, output: Path) -> bool:
    return arm.matters is None or arm.matters(case, _row(record, arms[0], case, output))


def _pairs(record: Record, first: Arm, other: Arm, cases: Sequence[Case]) -> Iterator[Pair]:
    for case in cases:
        keys = _key(first, case), _key(other, case)
        if keys[0] in record.rows and keys[1] in record.rows:
            yield record.rows[keys[0]], record.rows[keys[1]]


def _key(arm: Arm, case: Case) -> str:
    way = (arm.name, arm.tree.digest, arm.params, arm.without_bounds, arm.constants)
    what = (case.sha256, case.solver, case.seed, case.time_limit, case.work_limit, case.workers)
    return hashlib.sha256(json.dumps([way, what]).encode()).hexdigest()


def _row(record: Record, arm: Arm, case: Case, output: Path) -> Row:
    """The row of an arm on a case, solved now if it is not there."""
    key = _key(arm, case)
    if key not in record.rows:
        began = time.monotonic()
        answer, cpu = timed(lambda: _answer(arm, case, output))
        labels = {
            "arm": arm.name,
            "code": arm.tree.digest,
            "group": case.group,
            "instance": case.instance.name,
            "instance_sha256": case.sha256,
            "horizon": case.instance.horizon,
            "objective_kind": case.instance.objective,
            "gpus": case.instance.cluster.gpu_count,
            "solver": case.solver,
            "seed": case.seed,
            "limit": case.limit,
            "workers": case.workers,
        }
        costs = {"process_seconds": round(time.monotonic() - began, 3), "cpu_seconds": round(cpu, 3)}
        record.append({"key": key, **labels, "error": None, **answer, **costs})
    return record.rows[key]


def _answer(arm: Arm, case: Case, output: Path) -> dict[str, Any]:
    """What a process says of its solve; only ``error`` where it does not end well."""
    request = {
        "document": str(case.document),
        "solver": case.solver,
        "seed": case.seed,
        "time_limit": case.time_limit,
        "work_limit": case.work_limit,
        "workers": case.workers,
        "params": arm.params,
        "without_bounds": arm.without_bounds,
        "constants": arm.constants,
    }
    # -P keeps the script's own folder out of the way of PYTHONPATH.
    command = [sys.executable, "-P", str(_SCRIPT), json.dumps(request)]
    environment = {**os.environ, "PYTHONPATH": arm.tree.search_path(output)}
    patience = None if case.time_limit is None else case.time_limit + _GRACE_SECONDS
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {patience:g} s"}
    if ended.returncode != 0:
        return {"error": ended.stderr.strip().rpartition("\n")[2] or f"exit code {ended.returncode}"}
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer
