"""The empty model that formulations on CP-SAT begin with, and clauses that several of them state."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from jigsaw_opt.problem.clock import check_deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def new_model() -> cp_model.CpModel:
    """Return an empty model. Its builder gets an ``OutOfTimeError`` when the time of the solve is over."""
    return _limited_model()()


def add_apart(model: cp_model.CpModel, first: Iterable[cp_model.IntVar], second: Iterable[cp_model.IntVar]) -> None:
    """State that no literal of the one holds together with one of the other.

    `first, second`: the two groups of literals. One new literal stands between them, so the clauses are linear in
    number.
    """
    ours = model.new_bool_var("")
    for literal in first:
        model.add_implication(literal, ours)
    for literal in second:
        model.add_implication(literal, ~ours)


@cache
def _limited_model() -> type[cp_model.CpModel]:
    """Return the class of all models, made once: search builds hundreds of them."""
    from ortools.sat.python import cp_model

    class LimitedModel(cp_model.CpModel):
        """Checks the deadline with every constraint and literal."""

        def add(self, ct: Any) -> Any:
            check_deadline()
            return super().add(ct)

        def new_bool_var(self, name: str) -> Any:
            check_deadline()
            return super().new_bool_var(name)

    return LimitedModel
