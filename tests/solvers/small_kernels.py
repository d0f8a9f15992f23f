"""A function that is compiled within a second, for tests of how functions are compiled."""

from __future__ import annotations

from jigsaw_opt.solvers.engines.compiled import Numbers, kernel

FACTOR = 3


def one(numbers: Numbers) -> int:
    return numbers[0]


@kernel()
def total(numbers: Numbers) -> int:
    found = one(numbers)
    for k in range(1, len(numbers)):
        found += FACTOR * numbers[k]
    return found
