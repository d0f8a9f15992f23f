"""Functions on flat numbers, compiled by numba where it is installed.

A solve waits a moment for a thread beside it to read the functions from the cache that numba keeps on disk. Where they
are not there yet, it runs them as they are until the thread has them compiled. What they compute is the same, so
nothing but the pace changes. They use nothing but numbers, lists and heaps; what they take and fill are lists of
numbers as long as Python runs them, and arrays of 64 bits once they are compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, MutableSequence
from pathlib import Path
from types import CellType, FunctionType
from typing import Any, TypeAlias

__all__ = ["Numbers", "Reals", "arrays", "compilable", "compiled", "prepare", "reals"]

Numbers: TypeAlias = MutableSequence[int]
"""A list of integers, or an array of them."""
Reals: TypeAlias = MutableSequence[float]
"""A list of floats, or an array of them."""

_MOMENT = 2.0
"""Seconds within which functions are read from the disk, but not compiled."""

_lock = threading.Lock()
_signatures: dict[Callable[..., int], tuple[Callable[[Any], Any], tuple[Callable[..., Any], ...], bool]] = {}
_compiled: dict[Callable[..., int], Callable[..., int]] = {}
_thread: threading.Thread | None = None


def compilable(
    function: Callable[..., int],
    signature: Callable[[Any], Any],
    parts: tuple[Callable[..., Any], ...] = (),
    inline: bool = False,
) -> None:
    """Have a function compiled by the next `prepare`.

    Parameters
    ----------
    function
        The function.
    signature
        Takes the module ``numba``; returns the types of the result and of the arguments.
    parts
        Functions that it calls, or that one behind them calls; they are compiled along with it.
    inline
        Whether their text is put where they are called. A call counts references to all the arrays that it passes,
        which tells where parts are short; where they are long, a large function is slower than calls.
    """
    _signatures[function] = signature, parts, inline


def compiled(function: Callable[..., int]) -> Callable[..., int] | None:
    """The function compiled, once it is."""
    return _compiled.get(function)


def prepare(wait: float | None = _MOMENT) -> None:
    """Have all functions compiled by a thread of its own, as far as they are not.

    Parameters
    ----------
    wait
        For how many seconds to wait for it at most; None for as long as it takes.
    """
    global _thread
    with _lock:
        if _thread is None or (not _thread.is_alive() and len(_compiled) < len(_signatures)):
            _thread = threading.Thread(target=_compile, name="jigsaw-compile")
            _thread.start()
    _thread.join(wait)


def arrays(lists: Iterable[Numbers]) -> list[Numbers]:
    """Lists of integers as arrays."""
    import numpy as np

    found: list[Numbers] = []
    for numbers in lists:
        array: Numbers = np.array(numbers, np.int64)  # type: ignore[assignment]
        found.append(array)
    return found


def reals(numbers: Reals) -> Reals:
    """A list of floats as an array."""
    import numpy as np

    array: Reals = np.array(numbers, np.float64)  # type: ignore[assignment]
    return array


def _compile() -> None:
    try:
        import numba
    except ImportError:
        return
    for function, (signature, parts, inline) in list(_signatures.items()):
        if function in _compiled:
            continue
        whole = _with_parts(numba, function, parts, inline)
        try:
            _compiled[function] = numba.njit(signature(numba), nogil=True, cache=True)(whole)
        except RuntimeError:  # No folder for the cache can be written.
            _compiled[function] = numba.njit(signature(numba), nogil=True)(whole)


def _with_parts(
    numba: Any, function: Callable[..., int], parts: tuple[Callable[..., Any], ...], inline: bool
) -> Callable[..., int]:
    """The function as one that calls its parts compiled."""
    partly = numba.njit(nogil=True, inline="always" if inline else "never")
    names = {id(one.__globals__): dict(one.__globals__) for one in (function, *parts)}
    for part in parts:
        fast = partly(FunctionType(part.__code__, names[id(part.__globals__)], part.__name__))
        for known in names.values():
            known.update({name: fast for name, value in known.items() if value is part})
    # The cache knows a function by its code, what it closes over, and the age of its file; parts come from others too.
    ages = sorted({(path, Path(path).stat().st_mtime_ns) for path in (part.__code__.co_filename for part in parts)})
    code = function.__code__.replace(co_freevars=("ages",))
    return FunctionType(code, names[id(function.__globals__)], function.__name__, closure=(CellType(ages),))
