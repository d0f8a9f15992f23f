"""One solve by whatever code PYTHONPATH leads to; the request comes as JSON, and so does the answer.

It uses only what has been in the package from the start, so that old code can be measured too.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from jigsaw_opt import Options, load_instance, solve


def options(request: dict[str, Any]) -> Options:
    """Limits and seed, and what the request sets otherwise."""
    more: dict[str, Any] = {}
    if request["params"]:
        from jigsaw_opt.solvers.search.params import from_toml

        more["params"] = from_toml(request["params"])
    if request["without_bounds"]:
        more["without_bounds"] = tuple(request["without_bounds"])
    limits = {name: request[name] for name in ("time_limit", "work_limit", "seed", "workers")}
    return Options(**limits, **more)


def main() -> None:
    request = json.loads(sys.argv[1])
    instance = load_instance(request["document"])
    began = time.monotonic()
    result = solve(instance, request["solver"], options(request))
    answer = {
        "status": str(result.status),
        "objective": result.objective,
        "bound": result.bound,
        "gap": result.gap,
        "bound_reason": result.bound_reason,
        "seconds": round(time.monotonic() - began, 3),
        "moves": [move.name for move in getattr(result, "moves", ()) if move.calls],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
