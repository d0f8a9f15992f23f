"""The variables of the finite CP-SAT model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.timetable import variables

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

    Expression = cp_model.LinearExpr | int

ExchangeVariables = variables.ExchangeVariables["cp_model.IntVar", "Expression"]
JobVariables = variables.JobVariables["cp_model.IntVar", "Expression"]


def add_any(model: cp_model.CpModel, literal: cp_model.IntVar, literals: Sequence[cp_model.IntVar]) -> None:
    """State that `literal` holds exactly where one of the literals does.

    `literals`: the others; none of them makes `literal` false.
    """
    model.add_bool_or([~literal, *literals])
    for one in literals:
        model.add_implication(one, literal)
