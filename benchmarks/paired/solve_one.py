"""One solve by whatever code PYTHONPATH leads to; the request comes as JSON, and so does the answer.

It uses only what has been in the package from the start, so that old code can be measured too.
"""

from __future__ import annotations

import json
import math
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jigsaw_opt import Options, load_instance, solve

if TYPE_CHECKING:
    from jigsaw_opt.problem.instance import Instance


ALONE = "bounds"
"""In place of a solver: only the bounds, as a solve would have them beside its search."""


def options(request: dict[str, Any]) -> Options:
    """Limits and seed, and what the request sets otherwise."""
    more: dict[str, Any] = {}
    if request["params"]:
        from jigsaw_opt.solvers.search.param_file import from_toml

        more["params"] = from_toml(request["params"])
    if request["without_bounds"]:
        more["without_bounds"] = tuple(request["without_bounds"])
    limits = {name: request[name] for name in ("time_limit", "work_limit", "seed")}
    return Options(**limits, threads=request["workers"], **more)


def set_constant(setting: str) -> None:
    """Give a constant of the code, ``MODULE:NAME=JSON``, another value for the rest of this process."""
    place, _, value = setting.partition("=")
    module, _, name = place.partition(":")
    home = import_module(module)
    getattr(home, name)
    setattr(home, name, json.loads(value))


def bounded(instance: Instance, request: dict[str, Any]) -> dict[str, Any]:
    """The best bound that there is within a limit of work."""
    from jigsaw_opt.problem import compile_instance
    from jigsaw_opt.solvers.bounds import lower_bound, stronger_bounds

    operations, without = compile_instance(instance), tuple(request["without_bounds"])
    best = lower_bound(operations, without)
    for better in stronger_bounds(operations, best.value, request["work_limit"] or math.inf, without=without):
        best = better
    return {"status": "unknown", "objective": None, "bound": best.value, "gap": None, "bound_reason": best.reason}


def solved(instance: Instance, request: dict[str, Any]) -> dict[str, Any]:
    """What a solver finds."""
    result = solve(instance, request["solver"], options(request))
    return {
        "status": str(result.status),
        "objective": result.objective,
        "bound": result.bound,
        "gap": result.gap,
        "bound_reason": result.bound_reason,
        "moves": [move.name for move in getattr(result, "moves", ()) if move.calls],
    }


def main() -> None:
    request = json.loads(sys.argv[1])
    for setting in request["constants"]:
        set_constant(setting)
    instance = load_instance(request["document"])
    began = time.monotonic()
    answer = bounded(instance, request) if request["solver"] == ALONE else solved(instance, request)
    print(json.dumps(answer | {"seconds": round(time.monotonic() - began, 3)}))


if __name__ == "__main__":
    main()
