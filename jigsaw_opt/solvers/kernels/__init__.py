"""Every compiled function: plain Python on lists of numbers, which numba compiles for arrays where it is installed.

``list_scheduling`` times placed jobs, ``sequence_annealing`` and ``cyclic_annealing`` anneal operation sequences on the
finite and the cyclic horizon, ``assignment_annealing`` anneals assignments of jobs to candidate server sets,
``order_insertion`` inserts jobs in an order, ``activity_annealing`` anneals orders of placed activities,
and ``processor_sharing`` says when jobs end that do iterations at rates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jigsaw_opt.solvers.engines.native import CompilationRecipe

__all__ = ["compile_all"]

_MODULES = (
    "list_scheduling",
    "sequence_annealing",
    "cyclic_annealing",
    "assignment_annealing",
    "order_insertion",
    "activity_annealing",
    "processor_sharing",
)


def compile_all(tell: Callable[[str], None]) -> None:
    """Compile all functions that are not on disk yet, with one process per core; it takes about a minute.

    Each is on disk as soon as it is compiled, so an interruption loses nothing that is finished.

    Parameters
    ----------
    tell
        Is called with the name of each function that is compiled now, once it is, by one thread at a time.
    """
    from jigsaw_opt.solvers.engines import code_cache
    from jigsaw_opt.solvers.engines.native import RECIPES

    for module in _MODULES:
        import_module(f"{__name__}.{module}")
    missing = [recipe for recipe in RECIPES.values() if code_cache.find(recipe) is None]
    processes = min(os.cpu_count() or 1, len(missing))
    with ThreadPoolExecutor(processes or 1) as threads:
        shares = [missing[k::processes] for k in range(processes)]
        for _ in threads.map(lambda share: _compile(share, tell), shares):
            pass


def _compile(recipes: Sequence[CompilationRecipe], tell: Callable[[str], None]) -> None:
    from jigsaw_opt.solvers.engines import compiler

    with compiler.start(recipes) as process:
        for name, _ in compiler.results(process):
            tell(name.rpartition(":")[2])
