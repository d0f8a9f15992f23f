"""Functions on flat numbers, compiled by numba where it is installed.

A solve waits a moment for a thread beside it to read the functions from where they are kept on disk (`code_cache`).
Those that are not there are compiled by a process of its own (`compiler`), which ends with this one at the latest, and
run as they are until then. What they compute is the same, so nothing but the pace changes. They use nothing but
numbers, lists and heaps; what they take and fill are lists of numbers as long as Python runs them, and arrays of 64
bits once they are compiled.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, MutableSequence
from functools import partial
from types import FunctionType
from typing import Any, TypeAlias, TypeVar, get_type_hints

from jigsaw_opt.solvers.engines import code_cache, compiler
from jigsaw_opt.solvers.engines.native import RECIPES, CompilationRecipe, loaded

__all__ = ["Numbers", "Reals", "arrays", "compiled", "integers", "kernel", "prepare"]

Numbers: TypeAlias = MutableSequence[int]
"""A list of integers, or an array of them."""
Reals: TypeAlias = MutableSequence[float]
"""A list of floats, or an array of them."""
Function = TypeVar("Function", bound=Callable[..., Any])
State = TypeVar("State", bound=Numbers | Reals | tuple[Numbers | Reals, ...])

_LOGGER = logging.getLogger(__name__)
_lock = threading.Lock()
_compiled: dict[Callable[..., int], Callable[..., int]] = {}
_preparation: _Preparation | None = None


def kernel(lists: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that has a function compiled by the next `prepare`.

    The annotations say what it takes and returns: `int`, `float`, `Numbers`, `Reals` and named tuples of these. The
    functions that it calls stand before it, or in other modules, and are compiled along with it.

    Parameters
    ----------
    lists
        Whether it makes lists itself; what it calls writes to what it is given, and to nothing else.
    """

    def known(function: Function) -> Function:
        assert isinstance(function, FunctionType)
        RECIPES[function] = CompilationRecipe(function, partial(_signature, function), tuple(_called(function)), lists)
        return function

    return known


def compiled(function: Callable[..., int]) -> Callable[..., int] | None:
    """Return the compiled function, None as long as there is none."""
    return _compiled.get(function)


def prepare(wait: float | None) -> None:
    """Have all functions read from the disk or else compiled.

    Parameters
    ----------
    wait
        For how many seconds to wait at most until those on the disk are read; None to wait until all are compiled.
    """
    global _preparation
    if not code_cache.available():
        return
    with _lock:
        if _preparation is None or not _preparation.covers(RECIPES):
            _preparation = _Preparation([one for function, one in RECIPES.items() if function not in _compiled])
            _preparation.start()
            atexit.register(_preparation.stop)
    if wait is None:
        _preparation.join()
    else:
        _preparation.read.wait(wait)


class _Preparation(threading.Thread):
    """Makes functions ready for use beside a solve, and stops at once when Python ends.

    Parameters
    ----------
    recipes
        The functions.

    Attributes
    ----------
    read
        Set once those that are on the disk can be used.
    """

    def __init__(self, recipes: Iterable[CompilationRecipe]) -> None:
        # Not waited for by Python itself, which does not know how to stop it.
        super().__init__(name="jigsaw-compile", daemon=True)
        self.read = threading.Event()
        self._recipes = {each.name: each for each in recipes}
        self._pid, self._guard = os.getpid(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def covers(self, functions: Iterable[Callable[..., int]]) -> bool:
        """Return whether this has done, or is about to do, all that functions need."""
        begun = {each.function for each in self._recipes.values()} if self._pid == os.getpid() else set()
        return all(function in begun or function in _compiled for function in functions)

    def run(self) -> None:
        """Read what is on the disk and have the others compiled."""
        try:
            missing = [each for each in self._recipes.values() if not self._find(each)]
        except ImportError:  # The numba that is there does not work.
            return
        finally:
            self.read.set()
        if missing and not self._stopped:
            _LOGGER.warning(
                "the search is slower until its functions are compiled for this machine, which goes on beside it"
                " (%d to do); all in a minute: jigsaw solvers --compile",
                len(missing),
            )
            self._compile(missing)

    def stop(self) -> None:
        """Stop taking functions and end the process that compiles them; return once this thread has ended."""
        if self._pid != os.getpid():
            return
        with self._guard:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
        self.join()

    def _find(self, one: CompilationRecipe) -> bool:
        code = None if self._stopped else code_cache.find(one)
        if code is not None:
            _compiled[one.function] = loaded(one, code)
        return code is not None

    def _compile(self, missing: list[CompilationRecipe]) -> None:
        with self._guard:
            if self._stopped:
                return
            try:
                self._process = compiler.start(missing)
            except OSError:
                return
        with self._process as process:
            for name, code in compiler.results(process):
                if self._stopped:
                    break
                one = self._recipes[name]
                _compiled[one.function] = loaded(one, code)


def arrays(numbers: State) -> State:
    """Return a list of numbers as an array of 64 bits, or a named tuple of lists as one of arrays."""
    if isinstance(numbers, tuple):
        return type(numbers)(*map(arrays, numbers))  # type: ignore[arg-type]
    import numpy as np

    real = len(numbers) > 0 and isinstance(numbers[0], float)
    array: State = np.array(numbers, np.float64 if real else np.int64)  # type: ignore[assignment]
    return array


def integers(numbers: Numbers) -> list[int]:
    """Return a list or an array of integers as a list."""
    plain: Callable[[], list[int]] | None = getattr(numbers, "tolist", None)
    return list(numbers) if plain is None else plain()


def _signature(function: Callable[..., Any], numba: Any) -> Any:
    """Return the types of numba for the annotations of a function."""
    simple = {int: numba.int64, float: numba.float64, Numbers: numba.int64[::1], Reals: numba.float64[::1]}

    def of(hint: Any) -> Any:
        if hint in simple:
            return simple[hint]
        return numba.types.BaseTuple.from_types(tuple(map(of, get_type_hints(hint).values())), hint)

    hints = get_type_hints(function)
    return of(hints.pop("return"))(*map(of, hints.values()))


def _called(function: FunctionType) -> dict[FunctionType, None]:
    """Return the functions of Python that a function calls, or that those call."""
    found: dict[FunctionType, None] = {}
    new = [function]
    while new:
        one = new.pop()
        called = [one.__globals__.get(name) for name in one.__code__.co_names]
        new += (part for part in called if isinstance(part, FunctionType) and part not in found)
        found.update(dict.fromkeys(new))
    return found
