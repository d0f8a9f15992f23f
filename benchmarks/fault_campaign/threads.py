"""`solve` called from threads, from an event loop, in pools of processes: each call has its own answer."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from jigsaw_opt.documents import decode_instance, encode_plan
from jigsaw_opt.instances import load
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.solve import solve

from . import documents
from .contract import Campaign, Count, Part, Trial, first
from .documents import Json
from .inside import solved
from .launch import HOME, Running, failure
from .solvers import contradictions, unsound

__all__ = ["PART"]

_SOLVERS = ("greedy", "search", "cpsat", "ilp", "auto")
_LIMIT, _PATIENCE = 2.0, 120.0
_CALLS, _AT_ONCE = 12, 4
_CANCELLED = ("rack/weighted", "server/weighted", "rack/cyclic")


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Each way of calling in a process of its own, which prints its failures."""
    paths = {"PYTHONPATH": ":".join((str(HOME), *(str(folder) for folder in list(Path(__file__).parents)[1:3])))}
    for way in WAYS:
        words = [
            sys.executable,
            "-P",
            "-m",
            "fault_campaign.threads",
            way,
            str(campaign.seed),
            str(campaign.times(_CALLS)),
        ]
        ended = Running(words, environment=paths, folder=campaign.fresh("threads"), memory=None).end(_PATIENCE)
        wrong = failure(ended, {0})
        found = [] if wrong else json.loads(ended.out)
        how = f"python -m fault_campaign.threads {way} {campaign.seed} {campaign.times(_CALLS)}"
        yield Trial(way, first(wrong, *found), how, ended.seconds, ended.mebibytes, {Count.FAULTS: 1})


def _in_threads(seed: int, calls: int) -> Iterator[str]:
    """Every answer is sound, and no solver disproves another."""
    tried = [(documents.small(Random(f"{seed}/{k}"), 10), solver) for k in range(calls) for solver in _SOLVERS]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda pair: solved(pair[0], pair[1], _LIMIT), tried))
    yield from _judged(tried, answers)


def _in_loop(seed: int, calls: int) -> Iterator[str]:
    """While threads solve, the event loop goes on."""
    tried = [(documents.small(Random(f"{seed}/{k}"), 10), solver) for k in range(calls) for solver in _SOLVERS]
    ticks: list[float] = []

    async def beat() -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def all_calls() -> list[Json]:
        beating = asyncio.create_task(beat())
        found = await asyncio.gather(*(asyncio.to_thread(solved, pair[0], pair[1], _LIMIT) for pair in tried))
        beating.cancel()
        return found

    yield from _judged(tried, asyncio.run(all_calls()))
    if len(ticks) < 2:
        yield "the event loop stood still"


def _in_processes(seed: int, calls: int) -> Iterator[str]:
    """A pool of processes, each started afresh, and one of forks."""
    tried = [(documents.small(Random(f"{seed}/{k}"), 10), solver) for k in range(calls) for solver in _SOLVERS]
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(2, context) as pool:
            answers = list(pool.map(_pooled, tried))
        yield from (f"{method}: {wrong}" for wrong in _judged(tried, answers))


def _pooled(pair: tuple[Json, str]) -> Json:
    return solved(pair[0], pair[1], _LIMIT)


def _cancelled(seed: int, calls: int) -> Iterator[str]:
    """Solves without a limit, several at once; each ends when it is told to, and only then."""
    random = Random(seed)
    chosen = [(random.choice(_CANCELLED), random.choice(("search", "cpsat", "auto"))) for _ in range(calls)]
    for begin in range(0, calls, 2):
        pair = chosen[begin : begin + 2]
        options = [Options(workers=1, time_limit=60.0) for _ in pair]
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(solve, load(name), solver, o) for (name, solver), o in zip(pair, options)]
            for future, option in zip(futures, options):
                time.sleep(random.uniform(0, 1.0))
                told = time.monotonic()
                option.cancel.set()
                result = future.result()
                took = time.monotonic() - told
                yield from _after_cancel(result, took)


def _after_cancel(result: Result, took: float) -> Iterator[str]:
    if took > 5:
        yield f"{result.solver} ended {took:.1f} s after it was told to"
    if result.stopped_by not in ("interrupt", "proof"):
        yield f"{result.solver} was stopped by {result.stopped_by}"


def _same_options(seed: int, calls: int) -> Iterator[str]:
    """The same call in several threads gives the same plan, where one worker has work to do and no clock."""
    instance: Instance = decode_instance(json.dumps(documents.small(Random(seed), 10)).encode())
    plans: list[Any] = []

    def one() -> None:
        plan = solve(instance, "greedy", Options(seed=seed, workers=1)).plan
        plans.append(None if plan is None else json.loads(encode_plan(plan))["jobs"])

    threads = [threading.Thread(target=one) for _ in range(min(calls, 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(plan != plans[0] for plan in plans) or len(plans) != len(threads):
        yield "the same call gave different plans"


def _judged(tried: list[tuple[Json, str]], answers: list[Json]) -> Iterator[str]:
    for place in range(0, len(tried), len(_SOLVERS)):
        document = tried[place][0]
        own = {tried[k][1]: answers[k] for k in range(place, place + len(_SOLVERS))}
        for solver, answer in own.items():
            wrong = unsound(document, answer)
            if wrong:
                yield f"call {place}, {solver}: {wrong}"
        yield from contradictions({solver: answer for solver, answer in own.items() if "plan" in answer})


WAYS: dict[str, Callable[[int, int], Iterator[str]]] = {
    "threads": _in_threads,
    "an event loop": _in_loop,
    "pools of processes": _in_processes,
    "cancelled in threads": _cancelled,
    "the same call at once": _same_options,
}
PART = Part("threads", "solve is safe in threads, beside an event loop and in pools of processes", trials)

if __name__ == "__main__":
    print(json.dumps(list(WAYS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])))))
