"""Processes that the program starts: none outlives it, and one that dies is said to have died."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .launch import Ended, Running, failure, jigsaw

__all__ = ["PART"]

_INSTANCE = "server/weighted"
_PATIENCE = 40.0
_ENDING = (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT)
_WORKERS = ("bench", "simulate")


def trials(campaign: Campaign) -> Iterator[Trial]:
    """CBC below a solve that is ended, CBC itself killed, workers of sweeps below a driver that is ended."""
    for number in range(campaign.times(1)):
        for which in _ENDING:
            yield _parent_ended(campaign, which, number)
        yield _engine_killed(campaign)
        for command in _WORKERS:
            for which in (signal.SIGTERM, signal.SIGKILL):
                yield _driver_ended(campaign, command, which)


def _cbc(campaign: Campaign) -> tuple[Running, Path]:
    """A solve with CBC under way."""
    folder = campaign.fresh("children")
    own = folder / "tmp"
    own.mkdir()
    words = ("solve", _INSTANCE, "--solver", "ilp", "--engine", "cbc", "--time-limit", 30, "--json")
    running = jigsaw(*words, folder=folder, environment={"TMPDIR": str(own)}, memory=None)
    running.wait(lambda: any("cbc" in line for line in running.children().values()), _PATIENCE)
    return running, own


def _parent_ended(campaign: Campaign, which: signal.Signals, number: int) -> Trial:
    running, own = _cbc(campaign)
    there = any("cbc" in line for line in running.children().values())
    running.signal(which)
    ended = running.end(_PATIENCE)
    codes = {0, 5, 130, -which} if which == signal.SIGKILL else {0, 5, 130}
    left = [path.name for path in own.iterdir()]
    wrong = first(
        "" if there else f"CBC never ran: {ended.err}",
        failure(ended, codes),
        f"left in the temporary folder: {', '.join(left)}" if left else "",
    )
    counts = {Count.SIGNALS: 1}
    return Trial(f"CBC after {which.name} to its parent", wrong, f"{ended.command}; {number}", counts=counts)


def _engine_killed(campaign: Campaign) -> Trial:
    running, _ = _cbc(campaign)
    for pid, line in running.children().items():
        if "cbc" in line:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ended = running.end(_PATIENCE)
    wrong = first(failure(ended, {0, 1, 5}), _silent(ended))
    return Trial("CBC killed", wrong, ended.command, ended.seconds, counts={Count.SIGNALS: 1})


def _silent(ended: Ended) -> str:
    """Whether a death is passed off as something else."""
    try:
        answer = json.loads(ended.out)
    except ValueError:
        answer = {}
    told = any(
        word in (ended.err + ended.out).lower() for word in ("died", "killed", "ended by", "sigkill", "signal 9")
    )
    proven = answer.get("stopped_by") == "proof"
    return "" if told or proven else f"nobody says that the engine died; stopped by {answer.get('stopped_by')}"


def _driver_ended(campaign: Campaign, command: str, which: signal.Signals) -> Trial:
    folder = campaign.fresh("children")
    work = documents.trace(folder / "trace.csv", 50_000, campaign.random("children"))
    words = {
        "bench": ("bench", "rack/weighted", "--solvers", "cpsat", "--time-limits", "20", "-o", folder / "out", "-q"),
        "simulate": (
            *("simulate", "--sweep", "--workload", work, "--cluster", "8x4"),
            *("--policy", "las", "srtf", "-o", folder / "out", "-q"),
        ),
    }
    running = jigsaw(*words[command], folder=folder)
    running.wait(lambda: len(running.children()) >= 2, _PATIENCE)
    running.wait(lambda: (folder / "out").exists(), _PATIENCE)
    running.signal(which)
    ended = running.end(_PATIENCE)
    wrong = failure(ended, {130, -which} if which == signal.SIGKILL else {130})
    return Trial(f"workers of {command} after {which.name}", wrong, ended.command, counts={Count.SIGNALS: 1})


PART = Part("children", "children end with their parent; an engine that dies is said to have died", trials)
