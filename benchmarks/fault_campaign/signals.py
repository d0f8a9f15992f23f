"""Signals at random moments, to commands and to drivers of sweeps: what is known is written."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

from jigsaw_opt.instances import load

from .contract import Campaign, Count, Part, Trial, first
from .documents import PAIR, trace, tree, written
from .launch import Ended, Running, failure, jigsaw, judged, read
from .referee import verdict

_SOLVES = {"greedy": 2, "search": 6, "cpsat": 6, "ilp": 4, "auto": 9}
"""Solvers, and how often each is interrupted."""
_OTHERS = 5
_ENDING, _MANNERS = (SIGINT, SIGTERM, SIGHUP), ("one", "two quick", "group")
_BENCH = ("bench", "rack/weighted", "--solvers", "cpsat", "--time-limits", "20", "-o", "out", "-q")
_SIMULATE = ("simulate", "--workload", "trace.csv", "--cluster", "8x4", "-q", "-o", "out", "--policy", "las")


def signals(campaign: Campaign) -> Iterator[Trial]:
    """`solve` with every solver, then the commands that run long or start much."""
    folder = campaign.fresh("signals")
    instance = written(tree(load("rack/weighted")), folder / "instance.json")
    for solver, count in _SOLVES.items():
        for number in range(campaign.times(count)):
            plan = folder / f"{solver}-{number}.plan.json"
            running = jigsaw(
                *("solve", instance, "--solver", solver, "--time-limit", 20, "-v", "-o", plan), folder=folder
            )
            random = campaign.random("signals", solver, number)
            yield aftermath(random, f"solve --solver {solver}", number, running, number % 2 == 0, (instance, plan))
    trace(folder / "trace.csv", 20_000, campaign.random("signals"))
    written(PAIR, folder / "pair.json")
    for words in (("bench", "tiny", *_BENCH[2:]), _SIMULATE, ("check", "pair.json", "pair.json")):
        for number in range(campaign.times(_OTHERS)):
            own = [f"{words[0]}-{number}" if word == "out" else word for word in words]
            random = campaign.random("signals", words[0], number)
            yield aftermath(random, str(words[0]), number, jigsaw(*own, folder=folder), False, None)


def aftermath(
    random: Random, what: str, number: int, running: Running, ready: bool, plan: tuple[Path, Path] | None
) -> Trial:
    """Signal a command, not before it has a plan where it should be `ready`; `plan`: files of instance and plan."""
    which, manner = _ENDING[number % 3], _MANNERS[number // 3 % 3]
    if ready:
        running.wait(lambda: "objective" in running.text())
    running.sleep(random.uniform(0, 1.5))
    moment, known = running.seconds, plan is not None and "objective" in running.text()
    running.signal(which, group=manner == "group")
    if manner == "two quick":
        running.sleep(random.uniform(0, 0.05))
        running.signal(which)
    ended = running.end()
    wrong, lost, accepted = after_signal(ended, which, known, plan)
    counts = {Count.SIGNALS: 1 + (manner == "two quick"), Count.LOST: int(lost), Count.ACCEPTED: int(accepted)}
    how = f"{ended.command}; {which.name}, {manner}, after {moment:.2f} s"
    return Trial(f"{what}: {which.name}", wrong, how, ended.seconds - moment, counts=counts)


def after_signal(
    ended: Ended, which: signal.Signals, known: bool, plan: tuple[Path, Path] | None
) -> tuple[str, bool, bool]:
    """What is wrong after a signal, whether a known plan is lost, and whether a wrong one was written."""
    there = plan is not None and plan[1].exists()
    broken = verdict(read(plan[0]), read(plan[1])) if plan is not None and there else ""
    lost = known and plan is not None and not there
    # Before the program has the signal in hand, the system or Python ends it; nothing was known, so nothing is lost.
    codes = {0, 3, 5, 130} if known else {0, 3, 5, 130, -which}
    early = which == SIGINT and "Traceback" in ended.err and "/jigsaw_opt/" not in ended.err
    wrong = first(
        "a known plan is lost" if lost else "",
        f"a wrong plan: {broken}" if broken else "",
        "" if early and not known else failure(ended, codes),
        "half a file left" if plan is not None and list(plan[1].parent.glob(".*")) else "",
    )
    return wrong, lost, bool(broken)


@dataclass(frozen=True, slots=True)
class Case:
    """A command with children, when it is signalled, and what must hold."""

    fault: str
    words: tuple[object, ...]
    ready: Callable[[Running, Path], bool]
    which: signal.Signals
    codes: frozenset[int]
    holds: Callable[[Ended, Path], str] = lambda ended, folder: ""


def _working(running: Running, folder: Path) -> bool:
    return len(running.children()) >= 2 and (folder / "out").exists()


def _begun(running: Running, folder: Path) -> bool:
    return (folder / "out").exists()


def _kept_rows(ended: Ended, folder: Path) -> str:
    """The same command goes on to the end, with the rows that were there."""
    rows = folder / "out" / "rows.jsonl"
    before = [line for line in rows.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    again = jigsaw(*_SWEEP, folder=folder).end()
    after = rows.read_bytes().splitlines(keepends=True)
    keys = {json.loads(line)["key"] for line in after}
    kept = after[: len(before)] == before and len(keys) == len(after)
    return first(failure(again, {0}), "" if kept else "a row is lost or there twice")


def _goes_on(ended: Ended, folder: Path) -> str:
    """A simulation goes on from its snapshot to the end that it has without the interrupt."""
    whole = [str(word).replace("out", "whole") for word in _SIMULATE]
    ends = [jigsaw(*words, folder=folder).end() for words in ([*_SIMULATE, "--resume"], whole)]
    jobs = [folder / name / "jobs.csv" for name in ("out", "whole")]
    failures = [failure(end, {0}) for end in ends]
    same = not any(failures) and jobs[0].read_bytes() == jobs[1].read_bytes()
    return first(*failures, "" if same else "another end than without the interrupt")


_SWEEP = ("simulate", "--sweep", *_SIMULATE[1:], "fifo", "srtf")
_STOPPED, _KILLED = frozenset({130}), frozenset({0, -SIGKILL})
_CASES = (
    Case("bench after {}", _BENCH, _working, SIGTERM, _STOPPED),
    Case("bench after {}", _BENCH, _working, SIGKILL, _KILLED),
    Case("a sweep after {}", _SWEEP, _working, SIGTERM, _STOPPED, holds=_kept_rows),
    Case("a sweep after {}", _SWEEP, _working, SIGKILL, _KILLED, holds=_kept_rows),
    Case(
        "a simulation after {}",
        _SIMULATE,
        lambda _, folder: (folder / "out").exists(),
        SIGINT,
        _STOPPED,
        holds=_goes_on,
    ),
)


def children(campaign: Campaign) -> Iterator[Trial]:
    """Workers of sweeps below a driver that is ended."""
    for number in range(campaign.times(1)):
        yield from (_children(campaign, case, number) for case in _CASES)


def _children(campaign: Campaign, case: Case, number: int) -> Trial:
    folder, random = campaign.fresh("children"), campaign.random("children", case.fault, number)
    (folder / "tmp").mkdir()
    trace(folder / "trace.csv", 5_000, random)
    running = jigsaw(*case.words, folder=folder, environment={"TMPDIR": str(folder / "tmp")}, memory=None)
    there = running.wait(lambda: case.ready(running, folder))
    running.sleep(random.uniform(0, 0.3))
    running.signal(case.which)
    ended = running.end()
    wrong = ("" if there else f"too early: {ended.err}", failure(ended, case.codes), case.holds(ended, folder))
    counts = {Count.SIGNALS: 1}
    trial = judged(case.fault.format(case.which.name), folder, ended, case.codes, *wrong, counts=counts)
    return replace(trial, seconds=0.0)


PARTS = (
    Part("signals", "SIGINT, SIGTERM and SIGHUP keep the incumbent, end with 130 and leave nothing behind", signals),
    Part("children", "children end with their parent; what was finished is kept and goes on", children),
)
