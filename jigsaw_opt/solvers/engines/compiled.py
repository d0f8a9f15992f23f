"""Functions on flat numbers, compiled where the package was built with a C compiler (`kernel_source`).

An extension module beside the functions holds them all; where it is missing, or made of other sources, they run as they
are. What they compute is the same, so nothing but the speed changes. They use nothing but numbers and lists of them:
lists as long as Python runs them, and arrays of 64 bits once they are compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from importlib import import_module
from itertools import accumulate, chain
from types import ModuleType
from typing import TypeAlias, TypeVar

from jigsaw_opt.solvers.engines.kernel_source import digest, kernel_modules

Numbers: TypeAlias = MutableSequence[int]
"""A list of integers, or an array of them."""
Reals: TypeAlias = MutableSequence[float]
"""A list of floats, or an array of them."""
Function = TypeVar("Function", bound=Callable[..., int])
State = TypeVar("State", bound=Numbers | Reals | tuple[Numbers | Reals, ...])

MODULE = "jigsaw_opt.solvers.kernels.native"
_LOGGER = logging.getLogger(__name__)


def kernel(function: Function) -> Function:
    """Mark a function that is compiled.

    The annotations say what it takes and returns: `int`, `float`, `Numbers`, `Reals` and named tuples of the latter.
    The functions that it calls stand in its module or in others of `kernels`, and are compiled along with it. C may
    evaluate parts of an expression in any order, so that none reads what a function in another one changes.
    """
    return function


def compiled(function: Callable[..., int]) -> Callable[..., int] | None:
    """Return the compiled function, which other threads run beside; None where there is none."""
    found: Callable[..., int] | None = getattr(library(), function.__name__, None)
    return found


def fastest(function: Callable[..., int], fits: bool = True) -> tuple[Callable[..., int], Callable[[State], State]]:
    """Return a function as it runs fastest, and what turns lists of numbers into those that it takes.

    `fits`: whether all numbers fit into 64 bits, which compiled functions count in.
    """
    fast = compiled(function) if fits else None
    return (function, lambda numbers: numbers) if fast is None else (fast, arrays)


@cache
def warn_if_interpreted() -> None:
    """Say once where functions run as they are, and what compiles them."""
    if library() is not None:
        return
    if _extension_module() is None:
        why = "are not compiled; install the package again where there is a C compiler"
    else:
        why = "have changed since they were compiled; run `pip install --no-deps -e .` in the checkout"
    _LOGGER.warning("the search needs a hundred times as long for a step as it could: its functions %s", why)


def _extension_module() -> ModuleType | None:
    try:
        found = import_module(MODULE)
    except ImportError:
        return None
    # A folder of that name is a module, too.
    return found if hasattr(found, "SOURCES") else None


@cache
def library() -> ModuleType | None:
    """Return the extension module, if there is one that was made of the sources here."""
    found = _extension_module()
    return found if found is not None and digest(kernel_modules()) == found.SOURCES else None


def run_in_parts(
    run: Callable[[int, int], tuple[int, int]], steps: int, whole: int, most: int, stop: Callable[[int], bool]
) -> None:
    """Take steps in parts, so that the clock is checked now and then and limits of work hold at the same steps always.

    `run`: takes the number of the first step and how many to take; returns their work, and how many were taken. Fewer
    than asked for end it all. `whole`: steps after which their work is counted; at least 1 is taken. `most`: largest
    number of steps between two checks of the clock; at least 1 is taken. `stop`: called after each part with the work
    since it was counted last, or with 0 between; true ends it all.
    """
    done, work, whole, most = 0, 0, max(1, whole), max(1, most)
    while done < steps:
        count = min(most, whole - done % whole, steps - done)
        more, taken = run(done, count)
        work, done = work + more, done + taken
        counted = taken < count or done == steps or done % whole == 0
        if stop(work if counted else 0) or taken < count:
            return
        work = 0 if counted else work


@cache
def _with_place(kind: type) -> type:
    """Return a named tuple as `kind` is one, that can keep what a compiled function reads: its arrays stay the same."""
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "packed": None})


def arrays(numbers: State) -> State:
    """Return a list of numbers as an array of 64 bits, or a named tuple of lists as one of arrays."""
    if isinstance(numbers, tuple):
        found: State = _with_place(type(numbers))._make(map(arrays, numbers))  # type: ignore[attr-defined]
        return found
    import numpy as np

    real = len(numbers) > 0 and isinstance(numbers[0], float)
    array: State = np.array(numbers, np.float64 if real else np.int64)  # type: ignore[assignment]
    return array


def concatenated(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return where each row begins and the last one ends, and all rows in one, which is never empty."""
    return [0, *accumulate(map(len, rows))], [*chain.from_iterable(rows)] or [0]


def integers(numbers: Numbers) -> list[int]:
    """Return a list or an array of integers as a list."""
    plain: Callable[[], list[int]] | None = getattr(numbers, "tolist", None)
    return list(numbers) if plain is None else plain()
