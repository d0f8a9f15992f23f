"""Functions that are compiled within a second, for tests of how functions are translated."""

from __future__ import annotations

from typing import NamedTuple

from jigsaw_opt.solvers.engines.compiled import Numbers, Reals, kernel

FACTOR, _SHARE = 3, 1 / 16


class Pair(NamedTuple):
    """Two lists."""

    numbers: Numbers
    reals: Reals


def drawn(numbers: Numbers, most: int) -> int:
    """Change the first number and return what it says: two calls in an expression have to keep their order."""
    numbers[0] = (numbers[0] * 48271 + most) % 2147483647
    return numbers[0] % most


def divided(one: int, other: int) -> tuple[int, int]:
    return one // other, one % other


@kernel
def orders(pair: Pair, extra: Numbers, count: int) -> int:
    """Evaluate from left to right, and take the value of what is evaluated once."""
    numbers = pair.numbers
    total = drawn(numbers, 7) * 10 - numbers[1]
    numbers[1] += drawn(numbers, 9)
    one, two = drawn(numbers, 100), drawn(numbers, 50)
    one, numbers[1 + drawn(extra, 3)] = max(one, drawn(numbers, 100)), numbers[0]
    extra[1], extra[2] = extra[2], extra[1]
    numbers[0], total, numbers[3] = numbers[3], total + two, numbers[0]
    extra[1] = numbers[2] = one = one + count
    if (drawn(numbers, 50) < two and drawn(numbers, 2) == 0) or drawn(numbers, 3) == 1:
        total -= 1 << count
    return total + one


@kernel
def signs(pair: Pair, extra: Numbers, count: int) -> int:
    """Divide numbers of either sign, and compare them."""
    total = 0
    for n in range(len(extra)):
        for by in range(-3, 4):
            if by == 0:
                continue
            quotient, rest = divided(extra[n], by)
            total += FACTOR * quotient - rest
            total += 1 if -2 <= rest < 2 else -1
            if not (quotient < 0 or rest > 5) and total > 0:
                total = -total
    for n in range(len(extra) - 1, -1, -2):
        total += n * (extra[n] | 1) >> 2
        if n < count:
            break
    return total


@kernel
def rounded(pair: Pair, extra: Numbers, count: int) -> int:
    """Round as Python does."""
    reals, value = pair.reals, 0
    for n in range(len(reals)):
        left = 1.0 - n / len(reals)
        value = max(value, reals[n] * left + reals[0] * left)
        value = value ** (1.0 / count) if value > 1.0 else value**2.0 + _SHARE
        reals[n] = min(reals[n], value, 0.5) - value * reals[n] * reals[n] / FACTOR
        pair.numbers[0] += int(value * 1e6)
    return int(value * 1e12)


def within(numbers: Numbers, least: int, strictly: bool) -> bool:
    return numbers[0] > least if strictly else numbers[0] >= least


@kernel
def truths(pair: Pair, extra: Numbers, count: int) -> int:
    """Count and combine what is true."""
    found, seen = 0, False
    for n in range(len(extra)):
        seen = seen or extra[n] % 5 == count
        found += extra[n] > count
        found += 2 * (extra[n] or 7) + (extra[n] > 0 and extra[n] % 3)
        if not seen and within(pair.numbers, 1 << n, n % 2 == 0) == (n > 3):
            found += 100
    head, every = extra[:count], within(extra, 10, True)
    return found + len(head) if seen != every else -found
