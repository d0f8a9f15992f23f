"""Scheduling of deep-learning training by mathematical optimisation.

The names below are loaded when first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.checking import Violation as Violation
    from jigsaw_opt.checking import check as check
    from jigsaw_opt.documents import add_job as add_job
    from jigsaw_opt.documents import change_bandwidth as change_bandwidth
    from jigsaw_opt.documents import load_instance as load_instance
    from jigsaw_opt.documents import load_plan as load_plan
    from jigsaw_opt.documents import remove_job as remove_job
    from jigsaw_opt.documents import save_instance as save_instance
    from jigsaw_opt.documents import save_plan as save_plan
    from jigsaw_opt.errors import InvalidInputError as InvalidInputError
    from jigsaw_opt.errors import JigsawError as JigsawError
    from jigsaw_opt.problem.instance import Instance as Instance
    from jigsaw_opt.problem.plan import Plan as Plan
    from jigsaw_opt.solvers.options import Options as Options
    from jigsaw_opt.solvers.resolve import Fix as Fix
    from jigsaw_opt.solvers.resolve import placements_of as placements_of
    from jigsaw_opt.solvers.resolve import resolve as resolve
    from jigsaw_opt.solvers.result import Result as Result
    from jigsaw_opt.solvers.solve import solve as solve

__version__ = "0.2.0"

_HOMES = {
    "Fix": "solvers.resolve",
    "Instance": "problem.instance",
    "InvalidInputError": "errors",
    "JigsawError": "errors",
    "Options": "solvers.options",
    "Plan": "problem.plan",
    "Result": "solvers.result",
    "Violation": "checking",
    "add_job": "documents",
    "change_bandwidth": "documents",
    "check": "checking",
    "load_instance": "documents",
    "load_plan": "documents",
    "placements_of": "solvers.resolve",
    "remove_job": "documents",
    "resolve": "solvers.resolve",
    "save_instance": "documents",
    "save_plan": "documents",
    "solve": "solvers.solve",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
