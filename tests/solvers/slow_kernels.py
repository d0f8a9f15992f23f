"""As `small_kernels`, but compiling takes an hour."""

from __future__ import annotations

import time
from typing import Any

from jigsaw_opt.solvers.engines.compiled import Numbers
from jigsaw_opt.solvers.engines.native import RECIPES, CompilationRecipe


def first(numbers: Numbers) -> int:
    return numbers[0]


def types_after_an_hour(numba: Any) -> Any:
    time.sleep(3600)
    return numba.int64(numba.int64[::1])


RECIPES[first] = CompilationRecipe(first, types_after_an_hour)
