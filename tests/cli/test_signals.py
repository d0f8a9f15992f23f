"""Ctrl-C and SIGTERM end every command that computes, at once and with what it has found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from jigsaw_opt.cli import COMMANDS, main
from jigsaw_opt.documents import save_instance
from jigsaw_opt.problem import Cluster, Instance, Job, Link, Model, Segment, Server

pytest.importorskip("ortools")
_ROOT = Path(__file__).parents[2]
_FOREVER = ["--time-limit", "100000"]
_DRIVER = """
import os, sys, threading, time
from jigsaw_opt.cli import main

def begun(module, name):
    for frame in sys._current_frames().values():
        while frame is not None:
            if (frame.f_globals.get("__name__"), frame.f_code.co_qualname) == (module, name):
                return True
            frame = frame.f_back
    return False

def watch(place, number):
    while not begun(*place.split(":")):
        time.sleep(0.001)
    os.kill(os.getpid(), int(number))

threading.Thread(target=watch, args=sys.argv[1:3], daemon=True).start()
del sys.argv[1:3]
main()
"""
"""Runs a command and sends it a signal once some function of it runs."""


@dataclass(frozen=True)
class Case:
    """Arguments of a command, the function at which it is interrupted, and what it says then."""

    arguments: tuple[str, ...]
    place: str
    says: str = "interrupted: "


_SOLVED = "jigsaw_opt.solvers.run:_solved"
_FILLING = "jigsaw_opt.planning.fill.search:VectorSearch.run"
_STAGES = (
    *("--forward-us", "31,53,75,97,60", "--backward-us", "81,60,100,70,90"),
    *("--activation-bytes", "1", "--memory", "2", "--micro-batches", "30"),
)
COMPUTING = {
    "solve": (
        Case(("rack/weighted", *_FOREVER), _SOLVED),
        Case(("rack/weighted", "--solver", "phased", *_FOREVER), "jigsaw_opt.solvers.phased.solver:_search"),
    ),
    "failures": (Case(("rack/plain", "PLAN", "--repair", "100000"), "jigsaw_opt.solvers.failure_repair:repaired"),),
    "fill": (Case(("rack/cyclic", "--foreground", "job0,job1", *_FOREVER), _FILLING),),
    "pipeline": (Case((*_STAGES, "--schedule", "search", *_FOREVER), _SOLVED),),
    "shifts": (Case(("LINKED", "--most", "3", *_FOREVER), "jigsaw_opt.planning.shifts.ratios:_RatioSearch.first"),),
    "bench": (Case(("tiny", "--solvers", "greedy", "-o", "OUT"), "jigsaw_opt.sweeps.folder:sweep_into"),),
    "simulate": (
        Case(
            ("--workload", "week", "--cluster", "8x4", "--policy", "fifo", "-o", "OUT"),
            "jigsaw_opt.simulation.engine.simulation:Simulation.run",
            "keeps a snapshot: go on with the same command and --resume",
        ),
        Case(
            ("--workload", "week", "--cluster", "8x4", "--policy", "fifo", "las", "--sweep", "-o", "OUT"),
            "jigsaw_opt.sweeps.folder:sweep_into",
            "runs are kept in ",
        ),
        Case(
            ("--workload", "week", "--cluster", "8x4", "--policy", "fifo", "las", "--sweep", "-o", "BEGUN"),
            "jigsaw_opt.sweeps.simulations:simulations",
            "stays; the same command goes on",
        ),
    ),
    "advise": (
        Case(
            ("week", "--cluster", "8x4", "-o", "OUT"),
            "jigsaw_opt.sweeps.advice:Advisor.compare",
            "simulations are kept in ",
        ),
        Case(
            ("week", "--cluster", "8x4", "-o", "OUT"),
            "jigsaw_opt.sweeps.advice:Advisor.__init__",
            "interrupted: nothing was kept",
        ),
    ),
}
"""Commands that may compute for long, and what they do so in."""
AT_ONCE = {
    "burst": "a dynamic program of milliseconds",
    "check": "reads and checks",
    "completion": "prints",
    "convert": "reads and writes",
    "explain": "works out one plan, and keeps nothing before it is done",
    "export": "writes a program, and keeps nothing before it is done",
    "generate": "writes",
    "instances": "prints",
    "new": "reads and writes",
    "partition": "a dynamic program, and keeps nothing before it is done",
    "plot": "draws",
    "profile": "measures with PyTorch (tests/executor)",
    "run": "trains with PyTorch (tests/executor)",
    "schema": "prints",
    "solvers": "prints",
    "validate": "reads",
    "serve": "ends in order at the first signal, as tests of serving show",
    "when": "simulates a queue, and keeps nothing before it is done",
    "slurm": "sleeps between two looks, and its log has what it saw (tests/serving)",
}
"""All others: they keep nothing that a signal could save, and it ends them at once."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("signals")
    plan, linked = folder / "plan.json", folder / "linked.json"
    assert main(["solve", "rack/plain", "--solver", "greedy", "-q", "-o", str(plan)]) == 0
    save_instance(_linked(), linked)
    begun = folder / "begun"
    begun.mkdir()
    (begun / "rows.jsonl").touch()
    return {"PLAN": str(plan), "LINKED": str(linked), "BEGUN": str(begun)}


def _linked() -> Instance:
    """Five jobs on six servers, so that some share links."""
    draw = Random(1)
    servers = tuple(Server(f"s{k}", "v", 4, 10**9, 10**9) for k in range(6))
    links = tuple(Link(f"l{k}", (f"s{k}", "sw"), 10**6) for k in range(6))
    models = {f"m{k}": Model((Segment("g", {"v": draw.randint(50, 900)}, {"v": 99}, 500, 0),)) for k in range(5)}
    jobs = tuple(Job(f"j{k}", f"m{k}", 4, 1) for k in range(5))
    return Instance("linked", Cluster(servers, ("sw",), links), models, jobs, "cyclic", "period")


def test_every_command_is_known_to_compute_or_not() -> None:
    assert {*COMPUTING, *AT_ONCE} == {*COMMANDS}
    assert not {*COMPUTING} & {*AT_ONCE}


def _cases() -> Iterator[object]:
    """Every other one with Ctrl-C, the rest with SIGTERM."""
    every = [(command, number, case) for command, cases in COMPUTING.items() for number, case in enumerate(cases)]
    for at, (command, number, case) in enumerate(every):
        sent = (signal.SIGINT, signal.SIGTERM)[at % 2]
        yield pytest.param(command, case, sent, id=f"{command}-{number}-{sent.name}")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "case", "sent"), list(_cases()))
def test_a_signal_ends_what_would_go_on_for_a_day(
    command: str, case: Case, sent: signal.Signals, files: dict[str, str], tmp_path: Path
) -> None:
    known = {**files, "OUT": str(tmp_path / "out")}
    arguments = [known.get(argument, argument) for argument in case.arguments]
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, case.place, str(int(sent)), command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    assert done.returncode == 130, done.stderr
    assert case.says in done.stderr
    assert "Traceback" not in done.stderr
