"""`solve` called from threads, from an event loop, in pools of processes: each call has its own answer."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from random import Random

from jigsaw_opt.documents import decode_instance, encode_plan
from jigsaw_opt.instances import load
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.solve import solve

from .contract import FAULT, Campaign, Part, Trial, first
from .documents import Json, small
from .inside import servant, solved
from .solvers import SOLVERS, contradictions, unsound

_LIMIT, _PATIENCE, _CALLS = 2.0, 120.0, 12


def trials(campaign: Campaign) -> Iterator[Trial]:
    """Each way of calling in a process of its own."""
    for way, function in _WAYS.items():
        with servant() as helper:
            found = helper.ask(function, campaign.seed, campaign.times(_CALLS), timeout=_PATIENCE)
        wrong = found["raised"] if isinstance(found, dict) else first(*found)
        yield Trial(way, wrong, f"seed {campaign.seed}", counts=FAULT)


def _solved(tried: tuple[Json, str]) -> Json:
    return solved(*tried, _LIMIT)


def _in_pool(pool: Callable[[], Executor], seed: int, calls: int) -> list[str]:
    """Every answer is sound, and no solver disproves another; an event loop goes on meanwhile."""
    tried = [(small(Random(f"{seed}/{k}"), 10), solver) for k in range(calls) for solver in SOLVERS]
    ticks = 0

    async def beat() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def every() -> list[Json]:
        beating, loop = asyncio.create_task(beat()), asyncio.get_running_loop()
        with pool() as executor:
            found = await asyncio.gather(*(loop.run_in_executor(executor, _solved, one) for one in tried))
        beating.cancel()
        return found

    answers = asyncio.run(every())
    wrong = [f"{one[1]}: {unsound(one[0], answer)}" for one, answer in zip(tried, answers) if unsound(one[0], answer)]
    for k in range(0, len(tried), len(SOLVERS)):
        own = dict(zip(SOLVERS, answers[k : k + len(SOLVERS)]))
        wrong += contradictions({solver: answer for solver, answer in own.items() if "plan" in answer})
    return wrong if ticks > 1 else [*wrong, "the event loop stood still"]


def _processes(method: str) -> Executor:
    return ProcessPoolExecutor(2, multiprocessing.get_context(method))


def _cancelled(seed: int, calls: int) -> list[str]:
    """Solves without a limit, two at once; each ends when it is told to, and only then."""
    random, wrong = Random(seed), []
    for _ in range(calls // 2):
        names = random.choices(("rack/weighted", "server/weighted", "rack/cyclic"), k=2)
        options = [Options(threads=1, time_limit=60.0) for _ in names]
        with ThreadPoolExecutor(2) as pool:
            solvers = random.choices(("search", "cpsat", "auto"), k=2)
            futures = [pool.submit(solve, load(n), s, o) for n, s, o in zip(names, solvers, options)]
            for future, option in zip(futures, options):
                time.sleep(random.uniform(0, 1.0))
                told = time.monotonic()
                option.cancel.set()
                result, took = future.result(), time.monotonic() - told
                if took > 5 or result.stopped_by not in ("interrupt", "proof"):
                    wrong.append(f"{result.solver} ended {took:.1f} s after it was told to, by {result.stopped_by}")
    return wrong


def _same(seed: int, calls: int) -> list[str]:
    """The same call in several threads gives the same plan, where one worker has work to do and no clock."""
    instance = decode_instance(json.dumps(small(Random(seed), 10)).encode())

    def one(_: int) -> object:
        plan = solve(instance, "greedy", Options(seed=seed, threads=1)).plan
        return None if plan is None else json.loads(encode_plan(plan))["jobs"]

    with ThreadPoolExecutor(8) as pool:
        plans = list(pool.map(one, range(min(calls, 8))))
    return ["the same call gave different plans"] if any(plan != plans[0] for plan in plans) else []


_WAYS: dict[str, Callable[[int, int], list[str]]] = {
    "threads beside an event loop": partial(_in_pool, partial(ThreadPoolExecutor, 4)),
    "processes, started afresh": partial(_in_pool, partial(_processes, "spawn")),
    "processes, forked": partial(_in_pool, partial(_processes, "fork")),
    "cancelled in threads": _cancelled,
    "the same call at once": _same,
}
PARTS = (Part("threads", "solve is safe in threads, beside an event loop and in pools of processes", trials),)
