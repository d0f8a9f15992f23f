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
        """Add an integer variable, and return it.

        Parameters
        ----------
        name
            Name of what is added.
        low
            Least value.
        high
            Largest value.
        """

    def time(self, name: str, low: int, high: int) -> Any:
        """Add a variable in microseconds, and return it.

        Parameters
        ----------
        name
            Name of what is added.
        low
            Least value.
        high
            Largest value.
        """

    def defined(self, name: str, low: int, high: int, expression: Any) -> Any:
        """Return an expression in microseconds, as a variable where the engine asks for one.

        Parameters
        ----------
        name
            Name of what is added.
        low
            Least value.
        high
            Largest value.
        expression
            Linear, in microseconds.
        """

    def total(self, terms: Iterable[Any]) -> Any:
        """Return the sum of terms."""

    def negation(self, literal: Any) -> Any:
        """Return the literal that holds where another one does not."""

    def add(self, constraint: Any, name: str) -> Any:
        """Add a linear constraint.

        Parameters
        ----------
        constraint
            Linear, over variables of the model.
        name
            Name of what is added.
        """

    def add_if(self, literal: Any, left: Any, right: Any, slack: int, name: str) -> None:
        """State that `left` is at least `right` where a literal holds; elsewhere it is at most `slack` less anyway.

        Parameters
        ----------
        literal
            Where it holds, the row binds.
        left
            Linear expression.
        right
            Linear expression.
        slack
            Most by which `left` falls short of `right` where the literal does not hold.
        name
            Name of what is added.
        """

    def add_clause(self, literals: Sequence[Any], name: str) -> None:
        """State that one of the literals holds.

        Parameters
        ----------
        literals
            0-1 variables or their negations.
        name
            Name of what is added.
        """

    def add_implication(self, one: Any, other: Any, name: str) -> None:
        """State that one literal holds only where another one does.

        Parameters
        ----------
        one
            The literal that implies.
        other
            The literal that is implied.
        name
            Name of what is added.
        """

    def add_exactly_one(self, literals: Iterable[Any], name: str) -> None:
        """State that exactly one of the literals holds.

        Parameters
        ----------
        literals
            0-1 variables or their negations.
        name
            Name of what is added.
        """

    def add_ready(
        self, limit: Any, start: Any, ready: int, deep: Sequence[Any], shallow: Sequence[Any], late: int, name: str
    ) -> None:
        """State that `limit` is at least `ready` after `start` where one of the literals `deep` holds.

        Of `deep` and `shallow` at most one literal holds. Where it is one of `shallow`, `limit` is at most `late`
        before `start` anyway. All are in microseconds.

        Parameters
        ----------
        limit
            When a transfer starts at the earliest.
        start
            When a block starts.
        ready
            Duration of the block until the bucket is there.
        deep
            Literals of the levels that reach the bucket.
        shallow
            Literals of the other levels.
        late
            Most by which `limit` falls short of `start` at a shallow level.
        name
            Name of what is added.
        """


def add_any(model: TimetableModel, literal: Any, literals: Sequence[Any], name: str) -> None:
    """State that `literal` holds exactly where one of the literals does.

    `literals`: the others; none of them makes `literal` false.
    """
    model.add_clause([model.negation(literal), *literals], f"any_{name}")
    for k, one in enumerate(literals):
        model.add_implication(one, literal, f"any_{name}_{k}")
