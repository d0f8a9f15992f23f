"""One solve, measured; runs in whatever process the engine chooses."""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from typing import Any

from jigsaw_opt import __version__
from jigsaw_opt.documents import decode_instance, encode_plan
from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.sweeps.bench.known import beats_known
from jigsaw_opt.system.hardware import hardware

__all__ = ["measure"]

_MAXRSS_PER_MIB = 1024 * 1024 if platform.system() == "Darwin" else 1024


def measure(document: bytes, solver: str, options: Options) -> dict[str, Any]:
    """Solve an instance and tell what came out and what it cost.

    The part of a row that only the solve can tell; where it raised, only ``error`` and the costs.
    """
    instance = decode_instance(document)
    started, cpu = time.monotonic(), _cpu_seconds()
    outcome = _solved(instance, solver, options)
    return {
        **outcome,
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(_cpu_seconds() - cpu, 3),
        "peak_rss_mib": round(_peak_rss_mib(), 1),
        "host": platform.node(),
        "host_cores": os.cpu_count(),
        "hardware": hardware(),
    }


def _solved(instance: Instance, solver: str, options: Options) -> dict[str, Any]:
    try:
        result = solve(instance, solver, options)
    except JigsawError as error:
        return {"error": str(error)}
    return {**_outcome(result, options.time_limit), **_better_plan(result.plan)}


def _better_plan(plan: Plan | None) -> dict[str, Any]:
    """Return a plan that beats the best known value, as nobody might find it again; nothing of others."""
    if plan is None or not beats_known(plan.instance_sha256, plan.objective):
        return {}
    return {"plan": json.loads(encode_plan(plan))}


def _outcome(result: Result, limit: float | None) -> dict[str, Any]:
    return {
        "status": str(result.status),
        "stopped_by": str(result.stopped_by),
        "objective": result.objective,
        "bound": result.bound,
        "bound_reason": result.bound_reason,
        "gap": result.gap,
        "seconds_to_objective": _seconds_to(result),
        "primal_dual_integral": round(result.primal_dual_integral(limit), 6),
        "versions": {
            "python": platform.python_version(),
            "jigsaw-opt": __version__,
            **dict(result.versions),
        },
        "trajectory": [list(event) for event in result.trajectory],
    }


def _seconds_to(result: Result) -> float | None:
    """Return when the final objective was found, in the solver's clock; None without a plan or a progress stream."""
    if result.objective is None:
        return None
    reached = (e.seconds for e in result.trajectory if e.objective is not None and e.objective <= result.objective)
    return next(reached, None)


def _cpu_seconds() -> float:
    """Return user and system time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_rss_mib() -> float:
    """Return the most memory that this process held, or its largest child."""
    whos = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in whos) / _MAXRSS_PER_MIB
