"""A mixed-integer program, built with PuLP. No other module of the package knows PuLP's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from jigsaw_opt.problem.clock import look, looking
from jigsaw_opt.system.children import temporary_folder

if TYPE_CHECKING:
    import pulp

__all__ = ["Expression", "Matrix", "Program", "Row", "cbc_executable"]

Expression: TypeAlias = Any
"""A variable, a linear expression or a number; PuLP's operators take and return any of them, and state no types."""


class Row(NamedTuple):
    """One constraint, ``low <= coefficients * columns <= high``; an absent side is None."""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    low: float | None
    high: float | None


class Matrix(NamedTuple):
    """A program in numbers: minimise ``costs * x`` over rows and column bounds.

    Parameters
    ----------
    costs, lower, upper, integer
        By column.
    rows
        Constraints.
    """

    costs: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    integer: tuple[bool, ...]
    rows: tuple[Row, ...]


class Program:
    """Variables, constraints and objective of a minimisation.

    Parameters
    ----------
    name
        Name of the program in its documents.
    """

    def __init__(self, name: str) -> None:
        import pulp

        self.problem = pulp.LpProblem(name, pulp.LpMinimize)
        self._column: dict[pulp.LpVariable, int] = {}

    def binary(self, name: str) -> pulp.LpVariable:
        """A variable that is 0 or 1."""
        return self.integer(name, 0, 1)

    def integer(self, name: str, low: int, high: int) -> pulp.LpVariable:
        """An integer variable."""
        return self._add_variable(name, low, high, "Integer")

    def time(self, name: str, low: int, high: float) -> pulp.LpVariable:
        """A continuous variable; all of them are times or sums of times."""
        return self._add_variable(name, low, high, "Continuous")

    def add(self, constraint: pulp.LpConstraint | bool) -> None:
        """Add a constraint; one without variables is a truth value.

        Raises
        ------
        OutOfTimeError
            The time of the solve is over.
        """
        look()
        if constraint is True:
            return
        self.problem.addConstraint(self._contradiction() if constraint is False else constraint)

    def minimize(self, objective: Expression) -> None:
        """Set the objective."""
        self.problem.setObjective(objective)

    def total(self, terms: Iterable[Expression]) -> Expression:
        """Sum of many terms, in linear time."""
        import pulp

        return pulp.lpSum(terms)

    def column(self, variable: pulp.LpVariable) -> int:
        """Column of a variable in `matrix`."""
        return self._column[variable]

    @property
    def columns(self) -> dict[str, int]:
        """Column of every variable by its name."""
        return {variable.name: column for variable, column in self._column.items()}

    def matrix(self) -> Matrix:
        """The program in numbers."""
        variables = list(self._column)
        costs = [0.0] * len(variables)
        for variable, cost in self.problem.objective.items():
            costs[self._column[variable]] = cost
        return Matrix(
            tuple(costs),
            tuple(v.lowBound for v in variables),
            tuple(v.upBound for v in variables),
            tuple(v.cat == "Integer" for v in variables),
            tuple(self._row(constraint) for constraint in looking(self.problem.constraints())),
        )

    def document(self, kind: Literal["mps", "lp"]) -> bytes:
        """The program as an MPS or an LP file."""
        with temporary_folder() as folder:
            path = folder / f"program.{kind}"
            self.write(path, kind)
            return path.read_bytes()

    def write(self, path: Path, kind: Literal["mps", "lp"]) -> None:
        """Write the program to a new file."""
        write: dict[str, Callable[[str], object]] = {"mps": self.problem.writeMPS, "lp": self.problem.writeLP}
        write[kind](str(path))

    def _add_variable(self, name: str, low: int, high: float, category: str) -> pulp.LpVariable:
        variable = self.problem.add_variable(name, low, max(low, high), category)
        self._column[variable] = len(self._column)
        self.add(low <= high)
        return variable

    def _contradiction(self) -> pulp.LpConstraint:
        return self.integer(f"never_{len(self._column)}", 0, 0) >= 1

    def _row(self, constraint: pulp.LpConstraint) -> Row:
        terms, side = dict(constraint.items()), -constraint.constant
        low = side if constraint.sense >= 0 else None
        high = side if constraint.sense <= 0 else None
        return Row(tuple(self._column[v] for v in terms), tuple(map(float, terms.values())), low, high)


def cbc_executable() -> Path:
    """The CBC that PuLP brings along."""
    import pulp

    return Path(pulp.PULP_CBC_CMD.pulp_cbc_path)
