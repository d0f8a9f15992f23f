"""A function that is compiled within a second, for tests of how functions are compiled."""

from __future__ import annotations

import time
from typing import Any

from jigsaw_opt.solvers.engines.compiled import Numbers, compilable

FACTOR = 3


def one(numbers: Numbers) -> int:
    return numbers[0]


def total(numbers: Numbers) -> int:
    found = one(numbers)
    for k in range(1, len(numbers)):
        found += FACTOR * numbers[k]
    return found


def types(numba: Any) -> Any:
    return numba.int64(numba.int64[::1])


def types_after_an_hour(numba: Any) -> Any:
    time.sleep(3600)
    return types(numba)


compilable(total, types, (one,))
