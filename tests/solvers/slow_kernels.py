"""As `small_kernels`, but compiling takes an hour."""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, compilable
from tests.solvers.small_kernels import types_after_an_hour


def first(numbers: Numbers) -> int:
    return numbers[0]


compilable(first, types_after_an_hour)
