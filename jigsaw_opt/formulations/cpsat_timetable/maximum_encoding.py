"""The largest of some values as an order encoding of literals.

Step ``r`` is taken where something in use has value ``r`` or a larger one, so the value reached is linear in
the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.timetable.order_encoding import OrderEncoding

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["encode_maximum"]


def encode_maximum(
    model: cp_model.CpModel, uses: Sequence[tuple[int, cp_model.IntVar]]
) -> OrderEncoding[cp_model.IntVar]:
    """Return the order encoding of the largest value in use.

    The different values, ascending, and a literal for each step between two of them.

    `uses`: values, and for each the literal that it is in use; the least value is taken to be in use always.
    """
    values = tuple(sorted({value for value, _ in uses}))
    steps = tuple(model.new_bool_var("") for _ in values[1:])
    for above, below in pairwise(steps):
        model.add_implication(below, above)
    # Steps are only pushed to 1: the value reached is at least that of all in use, and no plan gains by a larger one.
    for value, literal in uses:
        if value > values[0]:
            model.add_implication(literal, steps[values.index(value) - 1])
    return OrderEncoding(values, steps)
