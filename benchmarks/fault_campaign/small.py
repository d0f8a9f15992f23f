"""The small ones: closed and full streams, plain terminals, odd folders, absurd options, damaged rows and replays."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .documents import Json
from .launch import HOME, Ended, Running, failure, run_jigsaw
from .names import raw

__all__ = ["PART"]

_PATIENCE, _ROWS = 60.0, 12
_ANY = frozenset(range(8)) | {130}
_FAULT = {Count.FAULTS: 1}
_PROGRAM = f"{shlex.quote(sys.executable)} -m jigsaw_opt"
_SOLVE = "solve instance.json --solver greedy -v"


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Each of them, once."""
    folder = campaign.fresh("small")
    documents.written(documents.PAIR, folder / "instance.json")
    yield from _streams(folder)
    yield from _options(folder)
    yield from _places(folder)
    yield from _rows(folder, campaign)
    yield from _replays(folder)
    yield _without_pulp(folder)


def _trial(fault: str, ended: Ended, codes: frozenset[int] = _ANY, lines: int = 3) -> Trial:
    """A few lines, none of them internal."""
    said = ended.err.strip().splitlines()
    wrong = first(
        failure(ended, codes),
        "an ignored exception" if "Exception ignored" in ended.err or "lost sys.stderr" in ended.err else "",
        f"{len(said)} lines of complaint" if len(said) > lines and ended.code != 0 else "",
        raw(ended.err),
    )
    return Trial(fault, wrong, ended.command, ended.seconds, ended.mebibytes, _FAULT)


def _shell(folder: Path, command: str, **environment: str) -> Ended:
    """A command line with `jigsaw` in it, by bash, whose exit code is that of the program, not of its reader."""
    full = f"set -o pipefail; {command.replace('jigsaw', _PROGRAM)}"
    return Running(["bash", "-c", full], command, folder, environment).end(_PATIENCE)


def _streams(folder: Path) -> Iterator[Trial]:
    """Standard output and error that are closed, full, or read by nobody; a terminal that knows ASCII alone."""
    lists = ("instances tiny", "schema plan", "validate instance.json")
    for words in ("--version", "--help", _SOLVE, f"{_SOLVE} --json", *lists):
        for fault, redirection in (
            ("standard output closed", ">&-"),
            ("standard output full", ">/dev/full"),
            ("standard error closed", "2>&-"),
            ("standard error full", "2>/dev/full"),
            ("both closed", ">&- 2>&-"),
            ("a reader that has gone", "| true"),
        ):
            yield _trial(fault, _shell(folder, f"jigsaw {words} {redirection}"))
        plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        yield _trial("an ASCII terminal", _shell(folder, f"jigsaw {words}", **plain), frozenset({0}))
    yield _trial("standard input closed", _shell(folder, f"jigsaw {_SOLVE} <&-"), frozenset({0}))


def _options(folder: Path) -> Iterator[Trial]:
    """Numbers and names beyond all measure are usage errors or work."""
    short = ("solve", "tiny/000", "--time-limit", 2, "-q")
    for words in (
        (*short, "--workers", 2**31),
        (*short, "--workers", 10**30),
        (*short, "--workers", 10**6, "--solver", "cpsat"),
        (*short, "--workers", 10**6, "--solver", "ilp"),
        (*short, "--seed", 2**70),
        (*short, "--seed", -1),
        (*short, "--time-limit", "1e308"),
        (*short, "--time-limit", "inf"),
        (*short, "--time-limit", "nan"),
        (*short, "--target", 10**40),
        (*short, "--gap", "1e-400"),
        (*short, "--work-limit", "1e308"),
        (*short, "--engine", "unknown"),
        (*short, "--solver", "ilp", "--engine", "unknown"),
        (*short, "--solver", "ilp", "--engine", ""),
        ("solve", "rack:" + "9" * 5000),
        ("solve", "rack:1:servers=" + "9" * 30),
        ("solve", "rack:1:load=" + "9" * 5000),
        ("generate", "rack", "--seed", 10**30, "-o", folder / "rack.json"),
        ("bench", "tiny/000", "--seeds", 2**70, "-o", folder / "bench"),
        ("bench", "tiny/000", "--jobs", 10**30, "-o", folder / "bench"),
        ("bench", "x" * 300, "-o", folder / "bench"),
        ("simulate", "--workload", "x" * 5000, "--cluster", "1x1", "--policy", "fifo", "-o", folder / "out"),
        ("simulate", "--workload", "w", "--cluster", "9" * 400 + "x4", "--policy", "fifo", "-o", folder / "out"),
        ("check", "x" * 300, "x" * 5000),
        ("validate", "x" * 300),
        ("solve", "instance.json", "--warm", "x" * 300),
        ("solve", "nul\x01name"),
    ):
        ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
        yield _trial("absurd options", ended, frozenset({0, 2, 3, 5}), lines=40)


def _places(folder: Path) -> Iterator[Trial]:
    """Folders that are gone, files that are none."""
    gone = 'mkdir gone; cd gone; rmdir "$PWD"; '
    for words in (
        "solve tiny/000 --solver greedy -q",
        "solve tiny/000 --solver greedy -q -o plan.json",
        "instances tiny",
    ):
        yield _trial("a deleted folder", _shell(folder, f"{gone}jigsaw {words}"))
    for given in (("solve", "."), ("validate", folder), ("check", "instance.json", folder), ("solve", "")):
        yield _trial("a folder for a file", run_jigsaw(*given, folder=folder, timeout=_PATIENCE), frozenset({2, 3}))


def _rows(folder: Path, campaign: Campaign) -> Iterator[Trial]:
    """A record of a sweep in which somebody has written."""
    words = ("bench", "tiny/000", "--solvers", "greedy", "--time-limits", "1", "-o", folder / "rows", "-q")
    run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
    rows = folder / "rows" / "rows.jsonl"
    genuine: Json = json.loads(rows.read_text())
    changed: list[tuple[str, bytes]] = [
        ("a deep row", b'{"key": ' + b"[" * 100_000),
        ("a deep row, whole", b'{"key": "x", "more": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        ("a row that is a list", b"[1]"),
        ("bytes that are no text", b"\xff\xfe"),
        ("a row of its key alone", documents.json_bytes({"key": genuine["key"]})),
    ]
    odd: tuple[Any, ...] = (None, "x", [1], {"x": 1}, -1, 10**400)
    changed += [
        (f"{name} is {str(value)[:10]}", documents.json_bytes({**genuine, name: value}))
        for name in ("objective", "bound", "status", "trajectory", "seconds", "gap", "instance", "solver", "versions")
        for value in odd
    ]
    for what, line in campaign.random("rows").sample(changed, min(len(changed), campaign.times(_ROWS))):
        rows.write_bytes(line + b"\n")
        ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
        trial = _trial("damaged rows", ended, frozenset({0, 3}))
        yield Trial(trial.fault, trial.failure, f"{what}; {trial.how}", trial.seconds, trial.mebibytes, _FAULT)


def _replays(folder: Path) -> Iterator[Trial]:
    """A replay that lacks what its plan has."""
    from jigsaw_opt.documents import load_plan
    from jigsaw_opt.documents.replay import plan_sha256

    plan = folder / "plan.json"
    run_jigsaw("solve", "instance.json", "--solver", "greedy", "-q", "-o", plan, folder=folder)
    stated = json.loads(plan.read_bytes())
    changes: dict[str, Callable[[Json], object]] = {
        "as it was": lambda replay: None,
        "a block missing": lambda replay: _jobs(replay)[0]["iterations"][0]["blocks"].pop(),
        "a transfer missing": lambda replay: _jobs(replay)[0]["iterations"][0]["transfers"].pop(),
        "an iteration missing": lambda replay: _jobs(replay)[0]["iterations"].pop(),
        "a job missing": lambda replay: _jobs(replay).pop(),
        "no job": lambda replay: _jobs(replay).clear(),
        "a GPU missing": lambda replay: _jobs(replay)[0]["gpus"].pop(),
        "a GPU of no server": lambda replay: _jobs(replay)[0].update(gpus=["x/0", "x/1"]),
        "no origin": lambda replay: replay["timeline"].update(origins_us=[]),
        "a late beginning": lambda replay: _jobs(replay)[0].update(first_iteration=10**15),
        "many passes": lambda replay: replay["timeline"].update(passes=10**15),
        "a level that is none": lambda replay: _jobs(replay)[0]["iterations"][0]["blocks"][0].update(level=99),
        "a bucket that is none": lambda replay: _jobs(replay)[0]["iterations"][0]["transfers"][0].update(bucket=99),
    }
    for what, change in changes.items():
        replay = _replay(stated, plan_sha256(load_plan(plan)))
        change(replay)
        path = documents.written(replay, folder / "replay.json")
        for form in ("html", "text"):
            words = ("plot", "instance.json", plan, "--replay", path, "--to", form, "-o", folder / f"plot.{form}")
            ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE)
            codes = frozenset({0}) if what == "as it was" else frozenset({0, 3})
            trial = _trial("a damaged replay", ended, codes, lines=20)
            yield Trial(trial.fault, trial.failure, f"{what}; {trial.how}", trial.seconds, trial.mebibytes, _FAULT)


def _jobs(replay: Json) -> list[Json]:
    found: list[Json] = replay["timeline"]["jobs"]
    return found


def _replay(plan: Json, sha256: str) -> Json:
    """A replay in which all went as planned."""
    jobs = json.loads(json.dumps(plan["jobs"]))
    for job in jobs:
        job |= {"first_iteration": 0, "parameters_sha256": [""] * len(job["gpus"])}
        for iteration in job["iterations"]:
            for block in iteration["blocks"]:
                block["loss"] = 0.5
    summary = {"objective": "makespan", "predicted_us": 1800, "measured_us": 1980, "transfer_error_us": 3}
    shares = {
        "block_error": 0.1,
        "block_error_p90": 0.2,
        "block_bias": 0.0,
        "busy_predicted": 0.8,
        "busy_measured": 0.7,
    }
    return {
        "format": "jigsaw-replay/1",
        "instance": plan["instance"],
        "instance_sha256": plan["instance_sha256"],
        "plan_sha256": sha256,
        "machine": {},
        "summary": summary | shares,
        "gpus": [],
        "timeline": {"passes": 1, "origins_us": [0], "jobs": jobs},
        "baseline": None,
    }


def _without_pulp(folder: Path) -> Trial:
    """The MPS file is written by PuLP; where it is not installed, that is told."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text('import sys\nsys.modules["pulp"] = None\n')
    path = os.pathsep.join((str(hidden), str(HOME)))
    words = ("export", "instance.json", "--to", "mps", "-o", folder / "program.mps")
    ended = run_jigsaw(*words, folder=folder, timeout=_PATIENCE, environment={"PYTHONPATH": path})
    return _trial("export without PuLP", ended, frozenset({0, 6}))


PART = Part("small", "odd streams, folders, options, rows and replays end with an exit code and a line", trials)
