"""What the rules that both exact models share ask of an engine: columns, and rows over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class TimetableModel(Protocol):
    """A model under construction, in terms of either engine.

    A *literal* is a 0-1 variable or the negation of one. Where an engine names no rows, names of rows are ignored.
    """

    def binary(self, name: str) -> Any:
        """Add a 0-1 variable, and return it."""

    def integer(self, name: str, low: int, high: int) -> Any:
        """Add an integer variable, and return it."""

    def time(self, name: str, low: int, high: int) -> Any:
        """Add a variable in microseconds, and return it."""

    def defined(self, name: str, low: int, high: int, expression: Any) -> Any:
        """Return an expression in microseconds, as a variable where the engine asks for one."""

    def total(self, terms: Iterable[Any]) -> Any:
        """Return the sum of terms."""

    def negation(self, literal: Any) -> Any:
        """Return the literal that holds where another one does not."""

    def add(self, constraint: Any, name: str) -> Any:
        """Add a linear constraint."""

    def add_if(self, literal: Any, left: Any, right: Any, slack: int, name: str) -> None:
        """State that `left` is at least `right` where a literal holds; elsewhere it is at most `slack` less anyway."""

    def add_clause(self, literals: Sequence[Any], name: str) -> None:
        """State that one of the literals holds."""

    def add_implication(self, one: Any, other: Any, name: str) -> None:
        """State that one literal holds only where another one does."""

    def add_exactly_one(self, literals: Iterable[Any], name: str) -> None:
        """State that exactly one of the literals holds."""

    def add_ready(
        self, limit: Any, start: Any, ready: int, deep: Sequence[Any], shallow: Sequence[Any], late: int, name: str
    ) -> None:
        """State that `limit` is at least `ready` after `start` where one of the literals `deep` holds.

        Of `deep` and `shallow` at most one literal holds. Where it is one of `shallow`, `limit` is at most `late`
        before `start` anyway. All are in microseconds.
        """


def add_any(model: TimetableModel, literal: Any, literals: Sequence[Any], name: str) -> None:
    """State that `literal` holds exactly where one of the literals does.

    `literals`: the others; none of them makes `literal` false.
    """
    model.add_clause([model.negation(literal), *literals], f"any_{name}")
    for k, one in enumerate(literals):
        model.add_implication(one, literal, f"any_{name}_{k}")
