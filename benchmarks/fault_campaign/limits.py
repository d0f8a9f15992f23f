"""Time limits: every solver on both horizons and clusters of every size, alone and beside a busy process.

A trial's seconds are what it took beyond its limit, starting Python and reading the instance.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from random import Random

from jigsaw_opt.documents import encode_instance
from jigsaw_opt.instances import generate, load

from .contract import Campaign, Count, Part, Trial, first
from .launch import Ended, Running, failure, late, run_jigsaw, start_seconds
from .referee import verdict
from .solvers import read

__all__ = ["PART", "Case", "every_case", "sample"]

_SECONDS = 170
"""What all trials may take at scale 1; at scale 100 every case is tried."""
_OTHER_SECONDS = 5
"""What a trial takes beside its limit, about."""
_PATIENCE = 60.0
_LIMITS = (1, 5, 10, 20, 30)
_SOLVERS = ("auto", "search", "greedy", "cpsat", "ilp", "portfolio")
_SIZES, _KINDS = ("server", "rack", "pod", "cluster"), ("plain", "weighted", "cyclic")
_CROWDED = "crowded/cyclic"


@dataclass(frozen=True, slots=True)
class Case:
    """A limit in seconds, a solver, an instance, and whether another process is busy meanwhile."""

    limit: int
    solver: str
    instance: str
    busy: bool


_FIRST = (Case(30, "auto", _CROWDED, False), Case(15, "auto", _CROWDED, True))
"""Once 31 and 2.9 seconds late: the engine heard nothing on a cyclic model of 60 000 intervals."""


def every_case() -> tuple[Case, ...]:
    """All that can be tried; `ilp` takes no cyclic instance."""
    names = (f"{size}/{kind}" for size, kind in product(_SIZES, _KINDS))
    cases = (Case(*values) for values in product(_LIMITS, _SOLVERS, names, (False, True)))
    return (*_FIRST, *(case for case in cases if case.solver != "ilp" or not case.instance.endswith("/cyclic")))


def sample(random: Random, seconds: float) -> tuple[Case, ...]:
    """Cases that the seconds are enough for, the hardest before others that are drawn; at least one."""
    first_of_all, others = every_case()[: len(_FIRST)], every_case()[len(_FIRST) :]
    cases = (*first_of_all, *random.sample(others, len(others)))
    found: list[Case] = []
    for case in cases:
        if case.limit + _OTHER_SECONDS <= seconds:
            seconds -= case.limit + _OTHER_SECONDS
            found.append(case)
    return tuple(found) or (min(cases, key=lambda case: case.limit),)


def limits(campaign: Campaign) -> Iterator[Trial]:
    """A sample of all cases."""
    start = start_seconds(campaign.fresh("limits"))
    for case in sample(campaign.random("limits"), _SECONDS * campaign.scale):
        folder = campaign.fresh("limits")
        document, plan = folder / "instance.json", folder / "plan.json"
        document.write_bytes(_document(case.instance))
        reading = run_jigsaw("validate", document, folder=folder, timeout=_PATIENCE).seconds
        with _busy_process(folder, case.busy):
            ended = run_jigsaw(
                *("solve", document, "--solver", case.solver, "--time-limit", case.limit, "-q", "-o", plan),
                folder=folder,
                timeout=case.limit + _PATIENCE,
            )
        yield _trial(case, ended, document, plan, start + reading)


def _trial(case: Case, ended: Ended, document: Path, plan: Path, loading: float) -> Trial:
    broken = verdict(read(document), read(plan)) if plan.exists() else ""
    wrong = first(failure(ended, {0, 5}), broken and f"a wrong plan: {broken}", late(ended, case.limit, loading))
    beside = " beside a busy process" if case.busy else ""
    return Trial(
        fault=f"{case.limit} s, {case.solver}{beside}",
        failure=wrong,
        how=f"{case.instance}: {ended.command}",
        seconds=max(0.0, ended.seconds - case.limit - loading),
        mebibytes=ended.mebibytes,
        counts={Count.ACCEPTED: int(bool(broken))},
    )


@cache
def _document(name: str) -> bytes:
    """An instance: a bundled one, or 43 jobs of six iterations on 64 GPUs of two types."""
    if name == _CROWDED:
        made = generate("crowded", 92, servers=8, gpus=8, iterations=(6, 6), objective="period")
        return encode_instance(made)
    return encode_instance(load(name))


@contextmanager
def _busy_process(folder: Path, wanted: bool) -> Iterator[None]:
    """Another process that uses a core, where one is wanted."""
    running = Running([sys.executable, "-c", "while True: pass"], folder=folder) if wanted else None
    try:
        yield
    finally:
        if running is not None:
            running.signal(signal.SIGKILL)
            running.end(_PATIENCE)


PART = Part("limits", "a time limit of t holds within 0.05 t + 1 s beside loading, whatever solver and size", limits)
