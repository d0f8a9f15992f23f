"""The largest of some values as a ladder of literals.

Step ``r`` is climbed where something in use has value ``r`` or a larger one, so the value reached is linear in
the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.timetable.pace import Ladder

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["ladder"]


def ladder(model: cp_model.CpModel, uses: Sequence[tuple[int, cp_model.IntVar]]) -> Ladder[cp_model.IntVar]:
    """Ladder over values that are worse the larger they are."""
    values = tuple(sorted({value for value, _ in uses}))
    steps = tuple(model.new_bool_var("") for _ in values[1:])
    for above, below in pairwise(steps):
        model.add_implication(below, above)
    for value, literal in uses:
        if value > values[0]:
            model.add_implication(literal, steps[values.index(value) - 1])
    return Ladder(values, steps)
