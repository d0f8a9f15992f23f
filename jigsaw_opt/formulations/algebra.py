"""A mixed-integer program stated in expressions, by PuLP. No other module of the package knows PuLP's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, TypeAlias

from jigsaw_opt.formulations.linear import Entries, LinearProgram, ProgramBuilder
from jigsaw_opt.formulations.program_files import FileKind, NamedProgram
from jigsaw_opt.formulations.scaled_program import ScaledProgram
from jigsaw_opt.problem.clock import check_deadline, checking_deadline

if TYPE_CHECKING:
    import pulp

Expression: TypeAlias = Any
"""A variable, a linear expression or a number; PuLP's operators take and return any of them, and state no types."""


class ProgramTooLargeError(Exception):
    """A program has more coefficients than it may have, or what the message says."""


class AlgebraicModel:
    """Variables, constraints and objective of a minimisation.

    `name`: name of the program in its documents. `most_coefficients`: a row with which there are more raises
    `ProgramTooLargeError`. `on_row`: called with the number of constraints after each.
    """

    def __init__(self, name: str, most_coefficients: float = inf, on_row: Callable[[int], None] | None = None) -> None:
        import pulp

        self.problem = pulp.LpProblem(name, pulp.LpMinimize)
        self._column: dict[pulp.LpVariable, int] = {}
        self._left, self._on_row, self._row_count = most_coefficients, on_row, 0

    def binary(self, name: str) -> pulp.LpVariable:
        """Add a variable that is 0 or 1, and return it."""
        return self.integer(name, 0, 1)

    def integer(self, name: str, low: int, high: int) -> pulp.LpVariable:
        """Add an integer variable, and return it."""
        return self._add_variable(name, low, high, "Integer")

    def time(self, name: str, low: int, high: float) -> pulp.LpVariable:
        """Add a continuous variable, and return it; all of them are times or sums of times."""
        return self._add_variable(name, low, high, "Continuous")

    def add(self, constraint: pulp.LpConstraint | bool, name: str) -> None:
        """Add a constraint, whose row has a name of its own; one without variables is a truth value.

        `constraint`: the constraint. True adds nothing; False adds a row that no solution meets.
        """
        check_deadline()
        if constraint is True:
            return
        row = self._contradiction() if constraint is False else constraint
        self.problem.addConstraint(row, name)
        self._row_count += 1
        self._left -= len(row)
        if self._left < 0:
            raise ProgramTooLargeError
        if self._on_row is not None:
            self._on_row(self._row_count)

    def defined(self, name: str, low: int, high: int, expression: Expression) -> Expression:
        """Return an expression as it is: rows take any."""
        return expression

    def negation(self, literal: Expression) -> Expression:
        """Return the expression that is 1 where a literal is 0."""
        return 1 - literal

    def add_if(self, literal: Expression, left: Expression, right: Expression, slack: int, name: str) -> None:
        """State that `left` is at least `right` where a literal is 1, and elsewhere at most `slack` less (big M)."""
        self.add(left >= right - slack * (1 - literal), name)

    def add_clause(self, literals: Sequence[Expression], name: str) -> None:
        """State that one of the literals is 1."""
        self.add(self.total(literals) >= 1, name)

    def add_implication(self, one: Expression, other: Expression, name: str) -> None:
        """State that one literal is 1 only where another one is."""
        self.add(one <= other, name)

    def add_exactly_one(self, literals: Iterable[Expression], name: str) -> None:
        """State that exactly one of the literals is 1."""
        self.add(self.total(literals) == 1, name)

    def add_ready(
        self,
        limit: Expression,
        start: Expression,
        ready: int,
        deep: Sequence[Expression],
        shallow: Sequence[Expression],
        late: int,
        name: str,
    ) -> None:
        """State that `limit` is at least `ready` after `start` where one of the literals `deep` is 1 (big M)."""
        self.add(limit >= start + ready * self.total(deep) - late * self.total(shallow), name)

    def minimize(self, objective: Expression) -> None:
        """Set the objective."""
        self.problem.setObjective(objective)

    def total(self, terms: Iterable[Expression]) -> Expression:
        """Return the sum of many terms, in linear time."""
        import pulp

        return pulp.lpSum(terms)

    def column(self, variable: pulp.LpVariable) -> int:
        """Return the column of a variable in `program`."""
        return self._column[variable]

    @property
    def columns(self) -> dict[str, int]:
        """Column of every variable by its name."""
        return {variable.name: column for variable, column in self._column.items()}

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of all rows, in their order."""
        return tuple(constraint.name for constraint in self.problem.constraints())

    def program(self) -> LinearProgram:
        """Return the model in arrays."""
        builder, variables = ProgramBuilder(), list(self._column)
        costs = [0.0] * len(variables)
        for variable, cost in self.problem.objective.items():
            costs[self._column[variable]] = cost
        # Bounds are rounded outwards, so that floats lose no solution; ``0.0 -`` keeps a bound of 0 from becoming -0.0.
        lower = [_no_greater(v.lowBound) for v in variables]
        upper = [0.0 - _no_greater(-v.upBound) for v in variables]
        builder.add_columns(costs, lower, upper, [v.cat == "Integer" for v in variables])
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        least: list[float] = []
        most: list[float] = []
        for row, constraint in enumerate(checking_deadline(self.problem.constraints())):
            for variable, value in constraint.items():
                rows.append(row)
                columns.append(self._column[variable])
                values.append(value)
            side = -float(constraint.constant)
            least.append(side if constraint.sense >= 0 else -inf)
            most.append(side if constraint.sense <= 0 else inf)
        builder.add_rows(Entries(rows, columns, values), least, most)
        return builder.program()

    def document(self, kind: FileKind) -> bytes:
        """Return the program as an MPS or an LP file, in the units of a `ScaledProgram`, its objective in its own."""
        scaled = ScaledProgram(self.program())
        program = replace(scaled.program, costs=scaled.program.costs * scaled.objective)
        remarks = (
            f"columns of times are in units of {scaled.time:.0f} us;"
            f" the column of the objective times {scaled.objective:.0f} is the objective",
        )
        return NamedProgram(program, self.problem.name, tuple(self.columns), self.rows, remarks).document(kind)

    def _add_variable(self, name: str, low: int, high: float, category: str) -> pulp.LpVariable:
        variable = self.problem.add_variable(name, low, max(low, high), category)
        self._column[variable] = len(self._column)
        # A variable with an empty domain gets one value, and a row that nothing meets.
        self.add(low <= high, f"empty_{name}")
        return variable

    def _contradiction(self) -> pulp.LpConstraint:
        return self.integer(f"never_{len(self._column)}", 0, 0) >= 1


def _no_greater(bound: float) -> float:
    """Return the largest float that is no greater than a number, for integers may have more digits than floats."""
    nearest = float(bound)
    return nearest if nearest <= bound else nextafter(nearest, -inf)
