"""Why no plan is better than a bound, and a critical chain in few lines: stretches that repeat are told once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds.driver import lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.relaxation import Bound
from jigsaw_opt.solvers.explanation.breakdown import NamedStep

_LONGEST = 32
"""Steps of the longest stretch whose repeats are looked for: a reader does not see a longer one as a repeat."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A stretch of a chain, so many times in a row.

    `steps`: the stretch when it comes first. `last`: the stretch when it comes last. `times`: number of times that it
    occurs. `time_us`: by step of the stretch, its time in all repeats, in microseconds.
    """

    steps: tuple[NamedStep, ...]
    last: tuple[NamedStep, ...]
    times: int
    time_us: tuple[int, ...]


def folded(chain: Sequence[NamedStep]) -> list[Fold]:
    """Return the chain as stretches, each with its number of repeats.

    Repeats may differ in their lengths, in their iterations, and in the numbers that are part of operations' names.
    """
    keys = [(step.kind, re.sub(r"\d+", "#", step.operation), step.on, step.by) for step in chain]
    found, at = list[Fold](), 0
    while at < len(chain):
        size, times = _best(keys, at)
        parts = [chain[at + k : at + size * times : size] for k in range(size)]
        spent = tuple(sum(step.end_us - step.start_us for step in part) for part in parts)
        end = at + size * times
        found.append(Fold(tuple(chain[at : at + size]), tuple(chain[end - size : end]), times, spent))
        at = end
    return found


def _best(keys: Sequence[object], at: int) -> tuple[int, int]:
    """Return length and repeats of the stretch from here on that saves most lines; of equal ones the shortest."""
    best, saved = (1, 1), 0
    for size in range(1, min(_LONGEST, (len(keys) - at) // 2) + 1):
        end = at + size
        while end < len(keys) and keys[end] == keys[end - size]:
            end += 1
        times = (end - at) // size
        if size * (times - 1) > saved:
            best, saved = (size, times), size * (times - 1)
    return best


_WORK = 1.0
"""Seconds of a usual core for relaxations that take their time."""


def bound_reason(instance: Instance, enough: int) -> Bound:
    """Return the best bound that the relaxations prove in a second, with its proof."""
    operations = compile_instance(instance)
    best = lower_bound(operations)
    if best.value < enough:
        for bound in stronger_bounds(operations, best.value, _WORK):
            best = bound
            if best.value >= enough:
                break
    return best
