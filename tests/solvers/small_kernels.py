"""Functions that are compiled within a second, for tests of how functions are translated."""

from __future__ import annotations

from heapq import heappop, heappush
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
    """Evaluate what other functions change, from left to right."""
    numbers = pair.numbers
    total = numbers[0] + drawn(numbers, 7) * 10 - drawn(numbers, 11)
    total += drawn(numbers, 5) * numbers[0] % 1000
    numbers[1] += drawn(numbers, 9)
    numbers[0] += drawn(numbers, 13)
    one, numbers[1 + drawn(extra, 3)] = max(drawn(numbers, 100), drawn(numbers, 100)), numbers[0]
    extra[1], extra[2] = extra[2], extra[1]
    extra[1] = numbers[2] = one = one + count
    if (drawn(numbers, 50) < drawn(numbers, 50) and drawn(numbers, 2) == 0) or drawn(numbers, 3) == 1:
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


@kernel
def events(pair: Pair, extra: Numbers, count: int) -> int:
    """Take events in their order."""
    heap = [(extra[0], 0, 0)]
    seen = [0]
    for n in range(1, len(extra)):
        heappush(heap, (extra[n] % 5, drawn(pair.numbers, 3), n))
    total = 0
    while len(heap) > 0:
        now = heap[0][0]
        seen.clear()
        while len(heap) > 0 and heap[0][0] == now:
            _, kind, which = heappop(heap)
            seen.append(which)
            total = (total * 31 + kind) % 1000003
        for which in seen:
            total = (total * 31 + which) % 1000003
        if len(seen) > count:
            break
    head = extra[:count]
    return total + len(head)
