"""The variables of the mixed-integer model of the finite horizon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.algebra import AlgebraicModel, Expression
from jigsaw_opt.formulations.timetable import variables

if TYPE_CHECKING:
    import pulp

__all__ = ["ExchangeVariables", "JobVariables", "add_any", "add_both"]

ExchangeVariables = variables.ExchangeVariables["pulp.LpVariable", Expression]
JobVariables = variables.JobVariables["pulp.LpVariable", Expression]


def add_any(model: AlgebraicModel, literal: pulp.LpVariable, literals: Sequence[pulp.LpVariable]) -> None:
    """State that a 0-1 variable is 1 exactly where one of the others is.

    `model`: the program, which receives columns and rows.
    """
    model.add(model.total(literals) >= literal, f"any_{literal.name}")
    for k, one in enumerate(literals):
        model.add(literal >= one, f"any_{literal.name}_{k}")


def add_both(model: AlgebraicModel, name: str, literals: Sequence[pulp.LpVariable]) -> pulp.LpVariable:
    """Add a 0-1 variable that is 1 exactly where all the others are, and return it.

    `model`: the program, which receives columns and rows.
    """
    literal = model.binary(name)
    model.add(literal >= model.total(literals) - (len(literals) - 1), f"all_{name}")
    for k, one in enumerate(literals):
        model.add(literal <= one, f"all_{name}_{k}")
    return literal
