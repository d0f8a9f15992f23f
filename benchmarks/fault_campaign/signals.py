"""Signals at random moments: the incumbent is written, the exit code is 130, and nothing is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from jigsaw_opt.documents import encode_instance
from jigsaw_opt.instances import load

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .launch import Ended, Running, failure, jigsaw
from .referee import verdict
from .solvers import read

__all__ = ["PART", "after_signal", "aftermath"]

_INSTANCE = "rack/weighted"
_SOLVES = (("greedy", 2), ("search", 6), ("cpsat", 6), ("ilp", 4), ("auto", 9))
"""Solvers, and how often each is interrupted."""
_OTHERS = 5
_PATIENCE = 60.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MANNERS = ("one", "two quick", "group")


def trials(campaign: Campaign) -> Iterator[Trial]:
    """`solve` with every solver, then the commands that run long or start much."""
    folder = campaign.fresh("signals")
    instance = folder / "instance.json"
    instance.write_bytes(encode_instance(load(_INSTANCE)))
    for solver, count in _SOLVES:
        for number in range(campaign.times(count)):
            yield _solve(campaign.random("signals", solver, number), solver, number, folder, instance)
    for command in ("bench", "simulate", "check"):
        for number in range(campaign.times(_OTHERS)):
            yield _other(campaign.random("signals", command, number), command, number, folder)


def _solve(random: Random, solver: str, number: int, folder: Path, instance: Path) -> Trial:
    plan = folder / f"{solver}-{number}.plan.json"
    solve = ("solve", instance, "--solver", solver, "--time-limit", 20, "-v", "-o", plan)
    running = jigsaw(*solve, folder=folder)
    ready = (lambda: "objective" in running.text()) if number % 2 == 0 else None
    return aftermath(random, f"solve --solver {solver}", number, running, ready, (instance, plan))


def _other(random: Random, command: str, number: int, folder: Path) -> Trial:
    out = folder / f"{command}-{number}"
    work = documents.trace(folder / "trace.csv", 20_000, random)
    pair = documents.written(documents.PAIR, folder / "pair.json")
    words: dict[str, tuple[Any, ...]] = {
        "bench": ("bench", "tiny", "--solvers", "greedy,cpsat", "--time-limits", 2, "-o", out, "-q"),
        "simulate": ("simulate", "--workload", work, "--cluster", "8x4", "--policy", "las", "-o", out, "-q"),
        "check": ("check", pair, pair),
    }
    return aftermath(random, command, number, jigsaw(*words[command], folder=folder), None, None)


def aftermath(
    random: Random,
    what: str,
    number: int,
    running: Running,
    ready: Callable[[], bool] | None,
    plan: tuple[Path, Path] | None,
) -> Trial:
    """Signal a command, and judge how it ends.

    Parameters
    ----------
    ready
        Holds at the earliest moment for the signal; default: any.
    plan
        The files of the instance and of the plan that it should write.
    """
    which, manner = _ENDING[number % 3], _MANNERS[number // 3 % 3]
    if ready is not None:
        running.wait(ready, _PATIENCE)
    moment = running.seconds + random.uniform(0, 1.5)
    running.wait(lambda: running.seconds >= moment, _PATIENCE)
    known = plan is not None and "objective" in running.text()
    sent = _send(running, which, manner, random)
    ended = running.end(_PATIENCE)
    wrong, lost, accepted = after_signal(ended, which, known, plan)
    counts = {Count.SIGNALS: sent, Count.LOST: int(lost), Count.ACCEPTED: int(accepted)}
    how = f"{ended.command}; {which.name}, {manner}, after {moment:.2f} s"
    return Trial(f"{what}: {which.name}", wrong, how, ended.seconds - moment, counts=counts)


def _send(running: Running, which: signal.Signals, manner: str, random: Random) -> int:
    running.signal(which, group=manner == "group")
    if manner != "two quick":
        return 1
    second = running.seconds + random.uniform(0, 0.05)
    running.wait(lambda: running.seconds >= second, _PATIENCE)
    running.signal(which)
    return 2


def after_signal(
    ended: Ended, which: signal.Signals, known: bool, plan: tuple[Path, Path] | None
) -> tuple[str, bool, bool]:
    """What is wrong after a signal, whether a known plan is lost, and whether a wrong one was written."""
    written = plan is not None and plan[1].exists()
    broken = verdict(read(plan[0]), read(plan[1])) if plan is not None and written else ""
    lost = known and plan is not None and not written
    codes = {0, 3, 5, 130}
    if not known:
        # Before the program has the signal in hand, the system ends it; nothing was known, so nothing is lost.
        codes |= {-which}
    # What Python itself prints before the package is loaded is not the package's.
    early = which == signal.SIGINT and "Traceback" in ended.err and "/jigsaw_opt/" not in ended.err
    said = "" if early and not known else failure(ended, codes)
    wrong = first(
        "a known plan is lost" if lost else "",
        f"a wrong plan: {broken}" if broken else "",
        said,
        "half a file left" if plan is not None and list(plan[1].parent.glob(".*")) else "",
    )
    return wrong, lost, bool(broken)


PART = Part("signals", "SIGINT, SIGTERM and SIGHUP keep the incumbent, end with 130 and leave nothing behind", trials)
