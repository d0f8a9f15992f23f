"""Random numbers that Python and compiled functions draw alike.

A generator multiplies modulo the prime 2^31 - 1 (Park and Miller, *Random number generators: good ones are hard to
find*, Communications of the ACM 31, 1988); exponential variates come from a table of quantiles.
"""

from __future__ import annotations

from math import log

from jigsaw_opt.solvers.engines.compiled import Numbers

__all__ = ["EXPONENTIALS", "LARGEST_SEED", "following", "randint"]

LARGEST_SEED = 2**31 - 2
EXPONENTIALS = [-log((k + 0.5) / 4096) for k in range(4096)]
"""Quantiles of the exponential distribution of mean 1."""


def following(seed: int) -> int:
    """The random number after one, both from 1 to `LARGEST_SEED`."""
    return seed * 48271 % 2147483647


def randint(rng: Numbers, number: int) -> int:
    """A random number from 0 to one less than the given one; the generator's state is alone in its list."""
    rng[0] = following(rng[0])
    return rng[0] * number >> 31
