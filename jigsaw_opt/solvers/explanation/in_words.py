"""Why no plan is better than a bound, and a critical chain in few lines: stretches that repeat are told once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jigsaw_opt.problem.bound_proof import BoundProof
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.bounds.driver import lower_bound, stronger_bounds
from jigsaw_opt.solvers.bounds.proof import Proof
from jigsaw_opt.solvers.certification import is_certified
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


class ReportedBound(NamedTuple):
    """A bound that is told, its proof in words, and whether the checker has found that right step by step."""

    value: int
    proof: Proof
    certified: bool

    @property
    def reason(self) -> str:
        """Return what proves the bound, in one sentence."""
        return self.proof.sentence


def bound_reason(instance: Instance, enough: int, given: BoundProof | None = None) -> ReportedBound:
    """Return what a right proof that was `given` says, or else the best bound that the relaxations prove in a second.

    `enough`: a bound at which to stop.
    """
    if given is not None:
        assert given.bound is not None, "there is a plan"
        servers, links = (tuple(dict.fromkeys(_names(given.argument, what))) for what in ("servers", "links"))
        told = Proof("the proof that was given says so", servers=servers, links=links, argument=given.argument)
        return ReportedBound(given.bound, told, True)
    operations = compile_instance(instance)
    best = lower_bound(operations)
    if best.value < enough:
        for bound in stronger_bounds(operations, best.value, _WORK):
            best = bound
            if best.value >= enough:
                break
    return ReportedBound(best.value, best.proof, is_certified(instance, best))


def _names(part: Any, what: str) -> Iterator[str]:
    """Yield the names in all fields of an argument and its parts that are called so, as in ``links``."""
    if isinstance(part, Mapping):
        if isinstance(own := part.get(what), list):
            yield from (name for name in own if isinstance(name, str))
        part = [*part.values()]
    for each in part:
        if isinstance(each, Mapping | list):
            yield from _names(each, what)
