"""The empty model that formulations on CP-SAT begin with, and clauses that several of them state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from jigsaw_opt.problem.clock import check_deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


def new_model() -> cp_model.CpModel:
    """Return an empty model. Its builder gets an ``OutOfTimeError`` when the time of the solve is over."""
    return _limited_model()()


class CpSatRows:
    """A model of CP-SAT as the rules that both engines share take it (`TimetableModel`); rows have no names."""

    def __init__(self, proto: cp_model.CpModel) -> None:
        self._proto = proto
        self.binary = proto.new_bool_var

    def integer(self, name: str, low: int, high: int) -> cp_model.IntVar:
        """Add an integer variable, and return it."""
        return self._proto.new_int_var(low, high, name)

    time = integer

    def defined(self, name: str, low: int, high: int, expression: Any) -> cp_model.IntVar:
        """Return an expression in microseconds as a variable, of which intervals are made."""
        value = self.integer(name, low, high)
        self._proto.add(value == expression)
        return value

    def total(self, terms: Iterable[Any]) -> Any:
        """Return the sum of terms."""
        return sum(terms)

    def negation(self, literal: cp_model.IntVar) -> Any:
        """Return the literal that holds where another one does not."""
        return ~literal

    def add(self, constraint: Any, name: str) -> None:
        """Add a linear constraint."""
        self._proto.add(constraint)

    def add_if(self, literal: Any, left: Any, right: Any, slack: int, name: str) -> None:
        """State that `left` is at least `right` where a literal holds."""
        self._proto.add(left >= right).only_enforce_if(literal)

    def add_clause(self, literals: Sequence[Any], name: str) -> None:
        """State that one of the literals holds."""
        self._proto.add_bool_or(literals)

    def add_implication(self, one: Any, other: Any, name: str) -> None:
        """State that one literal holds only where another one does."""
        self._proto.add_implication(one, other)

    def add_exactly_one(self, literals: Iterable[Any], name: str) -> None:
        """State that exactly one of the literals holds."""
        self._proto.add_exactly_one(literals)

    def add_ready(
        self, limit: Any, start: Any, ready: int, deep: Sequence[Any], shallow: Sequence[Any], late: int, name: str
    ) -> None:
        """State that `limit` is at least `ready` after `start` where one of the literals `deep` holds."""
        for literal in deep:
            self._proto.add(limit >= start + ready).only_enforce_if(literal)


def add_gpu_memory(
    model: cp_model.CpModel, gpu: int, memory: int, states: Iterable[Any], activations: Iterable[Any]
) -> None:
    """State that a GPU holds the states of all its workers and the largest activations among them."""
    # Nothing gains by a larger value, so that lower bounds are enough.
    largest = model.new_int_var(0, memory, f"activations on {gpu}")
    for size in activations:
        model.add(largest >= size)
    model.add(sum(states) + largest <= memory)


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
