"""The largest of some values as a ladder of literals.

Step ``r`` is climbed where something in use has value ``r`` or a larger one, so the value reached is linear in
the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    from jigsaw_opt.formulations.cpsat_timetable.variables import Expression

__all__ = ["Ladder", "climb", "ladder"]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Values from the best to the worst, and one literal for each step down; a lower step implies all above it."""

    values: tuple[int, ...]
    steps: tuple[cp_model.IntVar, ...]


def ladder(model: cp_model.CpModel, uses: Sequence[tuple[int, cp_model.IntVar]]) -> Ladder:
    """Ladder over values that are worse the larger they are."""
    values = tuple(sorted({value for value, _ in uses}))
    steps = tuple(model.new_bool_var("") for _ in values[1:])
    for above, below in pairwise(steps):
        model.add_implication(below, above)
    for value, literal in uses:
        if value > values[0]:
            model.add_implication(literal, steps[values.index(value) - 1])
    return Ladder(values, steps)


def climb(values: Sequence[int], steps: Sequence[cp_model.IntVar]) -> Expression:
    """Value at the step reached on a ladder, as a linear expression."""
    return values[0] + sum((b - a) * step for a, b, step in zip(values, values[1:], steps, strict=False))
