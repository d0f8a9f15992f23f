"""Writers that are killed, and several that write at once: what stands there is whole."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .launch import Ended, Running, failure, jigsaw, run_jigsaw
from .outputs import Place
from .referee import verdict
from .solvers import read

__all__ = ["PART"]

_KILLS, _SWEEPS, _PATIENCE = 20, 3, 40.0
_FAULT = {Count.FAULTS: 1}


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Kills at random moments, then two processes on one output."""
    for number in range(campaign.times(_KILLS)):
        yield _killed_while_writing(campaign, number)
    for number in range(campaign.times(_SWEEPS)):
        for command in ("bench", "simulate"):
            yield _killed_while_sweeping(campaign, command, number)
        yield _two_plans(campaign, number)
    yield _two_sweeps(campaign)


_WRITER = """
import sys
from pathlib import Path
from jigsaw_opt.documents import write_atomically
texts = [bytes([65 + k]) * 400_000 for k in range(26)]
k = 0
while True:
    write_atomically(Path(sys.argv[1]), texts[k % 26])
    k += 1
"""


def _killed_while_writing(campaign: Campaign, number: int) -> Trial:
    """A process that writes one file again and again, killed at a random moment."""
    folder = campaign.fresh("outputs")
    path, random = folder / "document", campaign.random("kill", number)
    running = Running([sys.executable, "-c", _WRITER, str(path)], "a loop of write_atomically", folder)
    running.wait(path.exists, _PATIENCE)
    moment = running.seconds + random.uniform(0, 0.3)
    running.wait(lambda: running.seconds > moment, _PATIENCE)
    running.signal(signal.SIGKILL)
    ended = running.end(_PATIENCE)
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) == 400_000 and len(set(data)) == 1
    wrong = first(failure(ended, {-9}), "" if whole else f"{len(data)} bytes of {len(set(data))} documents")
    counts = {Count.SIGNALS: 1, Count.LOST: int(not whole)}
    return Trial("kill -9 while writing", wrong, f"seed {campaign.seed}, kill {number}", counts=counts)


def _sweep(folder: Path, command: str, campaign: Campaign) -> tuple[object, ...]:
    if command == "bench":
        names = [f"tiny/{k:03}" for k in range(6)]
        return ("bench", *names, "--solvers", "greedy", "--time-limits", "1", "-o", folder / "out", "--json", "-q")
    work = documents.trace(folder / "trace.csv", 200, campaign.random("sweep"))
    cluster = ("--cluster", "4x4", "--policy", "fifo", "las", "srtf")
    return ("simulate", "--sweep", "--workload", work, *cluster, "-o", folder / "out", "--json", "-q")


def _killed_while_sweeping(campaign: Campaign, command: str, number: int) -> Trial:
    """The rows that were there stay, and the same command goes on to the end."""
    folder, random = campaign.fresh("outputs"), campaign.random("sweep", command, number)
    words, rows = _sweep(folder, command, campaign), folder / "out" / "rows.jsonl"
    running = jigsaw(*words, folder=folder)
    running.wait(lambda: rows.exists() and rows.stat().st_size > 0, _PATIENCE)
    moment = running.seconds + random.uniform(0, 0.5)
    running.wait(lambda: running.seconds > moment, _PATIENCE)
    running.signal(signal.SIGKILL)
    killed = running.end(_PATIENCE)
    before = [line for line in rows.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
    after = rows.read_bytes().splitlines(keepends=True)
    keys = [json.loads(line)["key"] for line in after]
    wrong = first(
        failure(killed, {-9, 0}),
        failure(ended, {0}),
        "a row that was there is lost" if after[: len(before)] != before else "",
        "a row is there twice" if len(set(keys)) != len(keys) else "",
    )
    counts = {Count.SIGNALS: 1}
    return Trial(f"kill -9 while sweeping: {command}", wrong, ended.command, ended.seconds, counts=counts)


def _two_plans(campaign: Campaign, number: int) -> Trial:
    """Two processes write one plan: what stands there in the end is one of them, whole."""
    place = Place(campaign.fresh("outputs"), "two processes on one plan")
    plan, ends = place.folder / "plan.json", list[Ended]()
    threads = [threading.Thread(target=lambda: ends.append(place.solve(plan))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = verdict(documents.PAIR, read(plan))
    trial = place.trial(ends[0], failure(ends[1], {0}), broken)
    return Trial(trial.fault, trial.failure, f"{trial.how}, twice at once; {number}", counts=_FAULT)


def _two_sweeps(campaign: Campaign) -> Trial:
    """The second one is told that another is at it."""
    folder = campaign.fresh("outputs")
    words, rows = _sweep(folder, "bench", campaign), folder / "out" / "rows.jsonl"
    one = jigsaw(*words, folder=folder)
    one.wait(rows.exists, _PATIENCE)
    other = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
    ended = one.end(_PATIENCE)
    wrong = first(failure(ended, {0}), failure(other, {0, 1}))
    return Trial("two sweeps in one folder", wrong, ended.command, counts=_FAULT)


PART = Part("kills", "kill -9 and writers at once leave whole documents, and sweeps go on", trials)
