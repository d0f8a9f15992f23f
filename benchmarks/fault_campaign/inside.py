"""The package called in a process of its own, which is replaced when it dies or does not answer."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from jigsaw_opt.checking import check
from jigsaw_opt.documents import (
    decode_instance,
    decode_plan,
    encode_plan,
    instance_sha256,
)
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.registry import find
from jigsaw_opt.solvers.solve import solve

Json = dict[str, Any]


class Servant:
    """Calls functions of this module, or others, in its process."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _quiet)
        self._pid = self._pool.submit(os.getpid).result()

    def ask(self, function: Callable[..., Any], *arguments: object, timeout: float) -> Any:
        """The answer; an object with ``raised`` where there was an exception, a death or no answer in time."""
        asked = self._pool.submit(function, *arguments)
        try:
            error = asked.exception(timeout)
        except TimeoutError:
            error = TimeoutError(f"no answer in {timeout:.0f} s")
        if error is None:
            return asked.result()
        self.close()
        self.__init__()  # type: ignore[misc]
        return {"raised": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """End the process."""
        os.kill(self._pid, signal.SIGKILL)
        self._pool.shutdown()


def _quiet() -> None:
    """What the package prints goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


@contextmanager
def servant() -> Iterator[Servant]:
    """A servant for as long as the block."""
    found = Servant()
    try:
        yield found
    finally:
        found.close()


def _decoded(document: Json) -> Instance:
    return decode_instance(json.dumps(document).encode())


def solved(document: Json, solver: str, seconds: float | None, workers: int = 1, seed: int = 0) -> Json:
    """What a solver makes of an instance, or why it refuses."""
    began = time.monotonic()
    try:
        instance = _decoded(document)
        if find(solver).unsupported(instance) is not None:
            return {"refused": "unsupported"}
        result = solve(instance, solver, Options(time_limit=seconds, threads=workers, seed=seed))
    except JigsawError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    plan = None if result.plan is None else json.loads(encode_plan(result.plan))
    values = {"status": result.status, "objective": result.objective, "bound": result.bound}
    return {**values, "plan": plan, "seconds": time.monotonic() - began}


def solved_phased(document: Json) -> Json:
    """A phased plan of an instance, or None."""
    plan = solve(_decoded(document), "phased", Options(threads=1)).plan
    return {"plan": None if plan is None else json.loads(encode_plan(plan))}


def judged(document: Json, plans: list[Json]) -> list[str]:
    """For each plan document, the first broken rule that the package finds, or an empty text."""
    return [_judged(document, plan) for plan in plans]


def _judged(document: Json, plan: Json) -> str:
    try:
        broken = check(_decoded(document), decode_plan(json.dumps(plan).encode()))
    except JigsawError as error:
        return f"{type(error).__name__}: {error}"
    return str(broken[0]) if broken else ""


def hashed(document: Json) -> str:
    """The hash of an instance, or why it is none."""
    try:
        return str(instance_sha256(_decoded(document)))
    except JigsawError as error:
        return str(error)
