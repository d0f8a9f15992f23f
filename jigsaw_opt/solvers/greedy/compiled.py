"""The functions of `timing`, compiled by numba where it is installed.

A solve does not wait for the compiler. It runs the functions as they are until a thread beside it has them compiled,
or read from the cache that numba keeps on disk. What they compute is the same, so nothing but the pace changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from jigsaw_opt.solvers.greedy.timing import Filled, Places, Shape, compress, list_schedule

__all__ = ["INTERPRETED", "Functions", "compiled", "prepare"]


class Functions(NamedTuple):
    """`timing.list_schedule` and `timing.compress`, as they are or compiled; the latter take arrays."""

    list_schedule: Callable[..., int]
    compress: Callable[..., int]


INTERPRETED = Functions(list_schedule, compress)
"""The functions as Python runs them."""

_lock = threading.Lock()
_thread: threading.Thread | None = None
_compiled: Functions | None = None


def compiled() -> Functions | None:
    """The compiled functions, once there are any."""
    return _compiled


def prepare(wait: bool = False) -> None:
    """Have the functions compiled by a thread of its own, unless they are.

    Parameters
    ----------
    wait
        Return only once that has ended.
    """
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_compile, name="jigsaw-compile")
            _thread.start()
    if wait:
        _thread.join()


def _compile() -> None:
    global _compiled
    try:
        import numba
    except ImportError:
        return
    numbers, integer, real = numba.int64[::1], numba.int64, numba.float64[::1]
    shape, places, filled = (
        numba.types.NamedUniTuple(numbers, len(kind._fields), kind) for kind in (Shape, Places, Filled)
    )
    signatures = {
        list_schedule: integer(shape, places, real, numbers, integer, integer, filled),
        compress: integer(shape, places, integer, integer, integer, integer, filled, filled),
    }

    def translated(function: Callable[..., int], cache: bool) -> Any:
        return numba.njit(signatures[function], nogil=True, cache=cache)(function)

    try:
        functions = [translated(function, True) for function in INTERPRETED]
    except RuntimeError:  # No folder for the cache can be written.
        functions = [translated(function, False) for function in INTERPRETED]
    _compiled = Functions(*functions)
