"""Every compiled function: plain Python on lists of numbers, which numba compiles for arrays where it is installed.

``list_scheduling`` times placed jobs, ``sequence_annealing`` and ``cyclic_annealing`` anneal operation sequences on the
finite and the cyclic horizon, ``assignment_annealing`` anneals assignments of jobs to candidate server sets,
``order_insertion`` inserts jobs in an order, ``activity_annealing`` anneals orders of placed activities,
and ``fluid`` says when jobs end that do iterations at rates.
"""

from __future__ import annotations

from importlib import import_module

__all__ = ["compile_all"]

_MODULES = (
    "list_scheduling",
    "sequence_annealing",
    "cyclic_annealing",
    "assignment_annealing",
    "order_insertion",
    "activity_annealing",
    "fluid",
)


def compile_all() -> None:
    """Have all functions compiled and on disk: half a minute, unless they are there already."""
    from jigsaw_opt.solvers.engines.compiled import prepare

    for module in _MODULES:
        import_module(f"{__name__}.{module}")
    prepare(None)
