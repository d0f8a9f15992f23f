"""Random numbers that Python and compiled functions draw alike.

A generator multiplies modulo the prime 2^31 - 1 (Park and Miller, *Random number generators: good ones are hard to
find*, Communications of the ACM 31, 1988); exponential variates come from a table of quantiles.
"""

from __future__ import annotations

from math import log

from jigsaw_opt.solvers.engines.compiled import Numbers

LARGEST_SEED = 2**31 - 2
EXPONENTIALS = [-log((k + 0.5) / 4096) for k in range(4096)]
"""Quantiles of the exponential distribution of mean 1."""


def following(seed: int) -> int:
    """Return the random number that follows another one; both are from 1 to `LARGEST_SEED`.

    This is the multiplicative congruential generator with multiplier 48271 and modulus 2^31 - 1.
    """
    # Factors of 31 and 16 bits: the product is exact in 64.
    return seed * 48271 % 2147483647


def randint(rng: Numbers, number: int) -> int:
    """Return a random number from 0 to `number` - 1.

    `rng`: state of the generator, the only entry of its list; changes.
    """
    rng[0] = following(rng[0])
    # A shift takes less time than a remainder, and the product is below 2^62.
    return rng[0] * number >> 31
