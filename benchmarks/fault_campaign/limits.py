"""Time limits: every solver on both horizons, on clusters of every size and on absurd instances, alone and beside load.

A trial's seconds are what it took beyond its limit, starting Python and reading the instance.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random

from jigsaw_opt.instances import generate, load

from .contract import Campaign, Count, Part, Trial
from .documents import LARGEST, Json, instance, job, models, servers, tree, written
from .launch import GIBIBYTE, Running, jigsaw, judged, late, read, start_seconds
from .referee import verdict
from .solvers import SOLVERS

_SECONDS, _OTHER_SECONDS = 170, 5
"""What all trials may take at scale 1, where 100 is every case, and what a trial takes beside its limit."""
_LIMITS = (1, 5, 10, 20, 30)
_SIZES, _KINDS = ("server", "rack", "pod", "cluster"), ("plain", "weighted", "cyclic")
_CROWDED = "crowded/cyclic"
_SIZE_LIMIT, _SIZE_SOLVERS = 3, 3
"""Seconds, and how many solvers try each absurd instance at scale 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """A limit in seconds, a solver, an instance, and whether another process is busy meanwhile."""

    limit: int
    solver: str
    instance: str
    busy: bool


_FIRST = (Case(30, "auto", _CROWDED, False), Case(15, "auto", _CROWDED, True))
"""The engine hears nothing on a cyclic model of 60 000 intervals."""


def every_case() -> tuple[Case, ...]:
    """All that can be tried; `ilp` takes no cyclic instance."""
    names = (f"{size}/{kind}" for size, kind in product(_SIZES, _KINDS))
    cases = (Case(*values) for values in product(_LIMITS, (*SOLVERS, "portfolio"), names, (False, True)))
    return (*_FIRST, *(case for case in cases if case.solver != "ilp" or not case.instance.endswith("/cyclic")))


def sample(random: Random, seconds: float) -> tuple[Case, ...]:
    """Cases that the seconds are enough for, the hardest before others that are drawn; at least one."""
    others = every_case()[len(_FIRST) :]
    found: list[Case] = []
    for case in (*_FIRST, *random.sample(others, len(others))):
        if case.limit + _OTHER_SECONDS <= seconds:
            seconds -= case.limit + _OTHER_SECONDS
            found.append(case)
    return tuple(found) or (min(others, key=lambda case: case.limit),)


def limits(campaign: Campaign) -> Iterator[Trial]:
    """A sample of all cases."""
    for case in sample(campaign.random("limits"), _SECONDS * campaign.scale):
        beside = " beside a busy process" if case.busy else ""
        with _busy_process(campaign.folder, case.busy):
            fault = f"{case.limit} s, {case.solver}{beside}"
            yield _within(campaign, fault, _document(case.instance), case.solver, case.limit, {0, 5}, case.instance)


def sizes(campaign: Campaign) -> Iterator[Trial]:
    """Huge numbers and huge lists in 4 GiB; below scale 1 fewer solvers for each."""
    random = campaign.random("sizes")
    for fault, (document, codes) in _huge().items():
        for solver in random.sample(SOLVERS, min(len(SOLVERS), campaign.times(_SIZE_SOLVERS))):
            yield _within(campaign, f"{fault}: {solver}", document, solver, _SIZE_LIMIT, codes)


def _within(
    campaign: Campaign,
    fault: str,
    document: Json,
    solver: str,
    limit: int,
    codes: set[int],
    how: str = "",
) -> Trial:
    """A solve that ends within its limit beside loading, with a correct plan if with one."""
    start = start_seconds(campaign.folder)
    folder = campaign.fresh("limits")
    source, plan, memory = (
        written(document, folder / "instance.json"),
        folder / "plan.json",
        (8 if how else 4) * GIBIBYTE,
    )
    loading = start + jigsaw("validate", source, folder=folder, memory=memory).end().seconds
    words = ("solve", source, "--solver", solver, "--time-limit", limit, "-q", "-o", plan)
    # Where nothing is compiled yet, that counts in the limit.
    cold = {} if how else {"NUMBA_CACHE_DIR": str(folder / "compiled")}
    ended = jigsaw(*words, folder=folder, memory=memory, environment=cold).end(limit + loading + 60)
    found = read(plan)
    # A phased plan is judged by the part `phased`, where it can be written out.
    listed = plan.exists() and not (isinstance(found, dict) and "groups" in found)
    broken = verdict(document, found) if listed else ""
    wrong = (broken and f"a wrong plan: {broken}", late(ended, limit, loading))
    files = (source,) if source.stat().st_size < 2**20 else ()
    counts = {Count.ACCEPTED: int(bool(broken))}
    trial = judged(fault, folder, ended, codes, *wrong, how=how, files=files, counts=counts)
    return replace(trial, seconds=max(0.0, ended.seconds - limit - loading))


@cache
def _document(name: str) -> Json:
    """An instance: a bundled one, or 43 jobs of six iterations on 64 GPUs of two types."""
    if name == _CROWDED:
        return tree(generate("crowded", 92, servers=8, gpus=8, iterations=(6, 6), objective="period"))
    return tree(load(name))


@contextmanager
def _busy_process(folder: Path, wanted: bool) -> Iterator[None]:
    """Another process that uses a core, where one is wanted."""
    running = Running([sys.executable, "-c", "while True: pass"], folder=folder) if wanted else None
    try:
        yield
    finally:
        if running is not None:
            running.signal(signal.SIGKILL)
            running.end()


def _huge() -> dict[str, tuple[Json, set[int]]]:
    """What is huge, its document, and the exit codes that make sense."""
    two, heavy = [job(workers=2)], [job(f"j{k}", 1 + k % 2, 2, weight=LARGEST - k) for k in range(20)]
    return {
        "2^53 - 1 workers on two GPUs": (instance([job(workers=LARGEST)]), {4}),
        "a server of 2^53 - 1 GPUs": (instance(two, servers(LARGEST)), {0, 3, 5}),
        "a server of 10^7 GPUs": (instance(two, servers(10**7)), {0, 3, 5}),
        "100 000 small jobs": (instance([job(f"j{k}") for k in range(10**5)], servers(8)), {0, 5}),
        "2 000 segments": (instance([job(workers=2, depth={"rule": "free"})], nets=models(2000)), {0, 5}),
        "10^6 iterations": (instance([job(workers=2, iterations=10**6), job("b")]), {0, 5}),
        "2^53 - 1 iterations": (instance([job(iterations=LARGEST)]), {0, 3, 5}),
        "weights of 2^53 - 1": (instance(heavy, objective="weighted_completion"), {0, 5}),
    }


PARTS = (
    Part("sizes", "instances of any size end within 1.05 t + 1 s and 4 GiB, with a documented exit code", sizes),
    Part("limits", "a time limit of t holds within 0.05 t + 1 s beside loading, whatever solver and size", limits),
)
