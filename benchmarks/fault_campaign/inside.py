"""The package called from within a process of its own: a request a line of JSON in, an answer a line out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from jigsaw_opt.checking import check
from jigsaw_opt.documents import (
    decode_instance,
    decode_phased_plan,
    decode_plan,
    encode_phased_plan,
    encode_plan,
    instance_sha256,
)
from jigsaw_opt.errors import InvalidInputError, JigsawError, UsageError
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.phased import resolve_phased, solve_phased
from jigsaw_opt.solvers.registry import find
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.solve import solve

__all__ = ["solved"]

Json = dict[str, Any]


def solved(document: Json, solver: str, seconds: float | None, workers: int = 1, seed: int = 0) -> Json:
    """What a solver makes of an instance, or why it refuses."""
    began = time.monotonic()
    try:
        instance = decode_instance(json.dumps(document).encode())
        if find(solver).unsupported(instance) is not None:
            return {"unsupported": True}
        result = solve(instance, solver, Options(time_limit=seconds, workers=workers, seed=seed))
    except JigsawError as error:
        return {"refused": f"{type(error).__name__}: {error}", "code": error.exit_code}
    return {
        "status": result.status,
        "stopped_by": result.stopped_by,
        "objective": result.objective,
        "bound": result.bound,
        "plan": None if result.plan is None else json.loads(encode_plan(result.plan)),
        "seconds": time.monotonic() - began,
    }


def solved_phased(document: Json) -> Json | None:
    """A phased plan of an instance, or None."""
    plan = solve_phased(decode_instance(json.dumps(document).encode()), Options(workers=1)).plan
    return None if plan is None else json.loads(encode_phased_plan(plan))


def resolved_phased(document: Json, plan: Json, before_us: int | None) -> str:
    """What is wrong with the plan that an old phased plan, however damaged, leads to; or an empty text."""
    try:
        instance = decode_instance(json.dumps(document).encode())
        old = decode_phased_plan(json.dumps(plan).encode())
        found = resolve_phased(instance, old, Fix(before_us=before_us), Options(workers=1)).plan
    except (InvalidInputError, UsageError):
        return ""
    return _judged(document, json.loads(encode_phased_plan(found))) if found is not None else ""


def judged(document: Json, plans: list[Json]) -> list[str]:
    """For each plan document, the first broken rule that the package finds, or an empty text."""
    return [_judged(document, plan) for plan in plans]


def _judged(document: Json, plan: Json) -> str:
    try:
        instance = decode_instance(json.dumps(document).encode())
        decode = decode_phased_plan if plan.get("format") == "jigsaw-phased-plan/1" else decode_plan
        broken = check(instance, decode(json.dumps(plan).encode()))
    except JigsawError as error:
        return f"{type(error).__name__}: {error}"
    return str(broken[0]) if broken else ""


def hashed(document: Json) -> str:
    """The hash of an instance, or why it is none."""
    try:
        return str(instance_sha256(decode_instance(json.dumps(document).encode())))
    except JigsawError as error:
        return str(error)


SERVED: dict[str, Callable[..., Any]] = {
    "solved": solved,
    "phased": solved_phased,
    "resolved": resolved_phased,
    "judged": judged,
    "hashed": hashed,
}


def main() -> None:
    """Answer until the input ends; what the package prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = SERVED[name](*arguments)
        except Exception as error:  # noqa: BLE001, a failure of the code under trial, which is told
            answer = {"raised": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
