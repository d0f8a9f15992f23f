"""Functions on flat numbers, compiled where the package was built with a C compiler (`translation`).

A library beside the functions holds them all; where it is missing, or made of other sources, they run as they are. What
they compute is the same, so nothing but the pace changes. They use nothing but numbers, lists and heaps; what they take
and fill are lists of numbers as long as Python runs them, and arrays of 64 bits once they are compiled.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, MutableSequence
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_type_hints

from jigsaw_opt.solvers.engines.translation import KERNELS, digest_of, sources

__all__ = [
    "LIBRARY",
    "Numbers",
    "Reals",
    "arrays",
    "compiled",
    "integers",
    "kernel",
    "library",
    "loaded",
    "warn_if_interpreted",
]

Numbers: TypeAlias = MutableSequence[int]
"""A list of integers, or an array of them."""
Reals: TypeAlias = MutableSequence[float]
"""A list of floats, or an array of them."""
Function = TypeVar("Function", bound=Callable[..., int])
State = TypeVar("State", bound=Numbers | Reals | tuple[Numbers | Reals, ...])

LIBRARY = KERNELS / "kernels.bin"
"""Not named as a library is: Python would take it for a module."""
_LOGGER = logging.getLogger(__name__)


def kernel(function: Function) -> Function:
    """Mark a function that is compiled.

    The annotations say what it takes and returns: `int`, `float`, `Numbers`, `Reals` and named tuples of these. The
    functions that it calls stand in its module or in others of `kernels`, and are compiled along with it.
    """
    return function


def compiled(function: Callable[..., int]) -> Callable[..., int] | None:
    """Return the compiled function, None where there is none."""
    found = library()
    return None if found is None else loaded(found, function)


@cache
def warn_if_interpreted() -> None:
    """Say once where functions run as they are."""
    if library() is None:
        _LOGGER.warning(
            "the search needs a hundred times as long for a step as it could, since its functions are not compiled;"
            " a C compiler does it in seconds: jigsaw solvers --compile"
        )


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, if there is one that was made of the sources here."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        digest = (ctypes.c_char * 64).in_dll(found, "kernels_digest").value
    except (OSError, ValueError):
        return None
    return found if digest.decode() == digest_of(sources()) else None


@cache
def loaded(native: ctypes.CDLL, function: Callable[..., int]) -> Callable[..., int]:
    """Return a function of a library, which other threads run beside.

    Parameters
    ----------
    native
        A library that has the function, from `translation.build`.
    function
        The function as Python runs it.
    """
    hints = get_type_hints(function)
    result = hints.pop("return")
    called = native[f"call_{function.__name__}"]
    called.restype = ctypes.c_double if result is float else ctypes.c_int64
    kinds = list(hints.values())
    types: list[Any] = [_SIMPLE.get(kind, ctypes.c_void_p) for kind in kinds]
    called.argtypes = types
    packed = [
        (number, _packed_array if kind in _ITEMS else _packed_tuple, kind)
        for number, kind in enumerate(kinds)
        if kind not in _SIMPLE
    ]

    def call(*given: Any) -> int:
        values = list(given)
        kept = []
        for number, pack, kind in packed:
            buffer = pack(given[number], kind)
            kept.append(buffer)
            values[number] = ctypes.addressof(buffer)
        found: int = called(*values)
        return found

    return call


_SIMPLE = {int: ctypes.c_int64, float: ctypes.c_double}
_ITEMS = {Numbers: "<i8", Reals: "<f8"}


def _packed_array(numbers: Any, kind: Any) -> ctypes.Array[ctypes.c_int64]:
    """Return address and length of an array."""
    return (ctypes.c_int64 * 2)(*_placed(numbers, kind))


def _placed(numbers: Any, kind: Any) -> tuple[int, int]:
    found = numbers.__array_interface__
    if len(numbers) and (found["typestr"] != _ITEMS[kind] or found["strides"] is not None):
        raise TypeError(f"no array of 64 bits: {numbers!r}")
    return found["data"][0], len(numbers)


def _packed_tuple(numbers: Any, kind: Any) -> ctypes.Array[ctypes.c_int64]:
    """Return addresses and lengths of the arrays of a named tuple, which `arrays` has a place for."""
    known: ctypes.Array[ctypes.c_int64] | None = getattr(numbers, "packed", None)
    if known is None:
        fields = zip(numbers, _fields(kind), strict=True)
        flat = [number for array, own in fields for number in _placed(array, own)]
        known = (ctypes.c_int64 * len(flat))(*flat)
        if hasattr(numbers, "__dict__"):
            numbers.packed = known
    return known


@cache
def _fields(kind: Any) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind).values())


@cache
def _with_place(kind: type) -> type:
    """Return a named tuple as `kind` is one, that can keep what a compiled function reads: its arrays stay the same."""
    return type(kind.__name__, (kind,), {"__module__": kind.__module__})


def arrays(numbers: State) -> State:
    """Return a list of numbers as an array of 64 bits, or a named tuple of lists as one of arrays."""
    if isinstance(numbers, tuple):
        found: State = _with_place(type(numbers))._make(map(arrays, numbers))  # type: ignore[attr-defined]
        return found
    import numpy as np

    real = len(numbers) > 0 and isinstance(numbers[0], float)
    array: State = np.array(numbers, np.float64 if real else np.int64)  # type: ignore[assignment]
    return array


def integers(numbers: Numbers) -> list[int]:
    """Return a list or an array of integers as a list."""
    plain: Callable[[], list[int]] | None = getattr(numbers, "tolist", None)
    return list(numbers) if plain is None else plain()
