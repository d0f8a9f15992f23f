"""The solvers that are installed, ours and third parties', found by entry point."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Report, Result

__all__ = ["GROUP", "Solver", "find", "names"]

GROUP = "jigsaw_opt.solvers"


class Solver(Protocol):
    """What an entry point of the group ``jigsaw_opt.solvers`` names.

    Loading it must not import its engine.
    """

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def display_name(self) -> str:
        """One line for a list of solvers."""

    def unavailable(self) -> str | None:
        """The ``pip install`` argument that is missing, or None where the engine is installed."""

    def unsupported(self, instance: Instance) -> str | None:
        """Why it does not take this instance, or None where it does."""

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve the instance; the plan is checked by the caller."""


def names() -> tuple[str, ...]:
    """Names of all registered solvers, sorted; none of them is loaded."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


@cache
def find(name: str) -> Solver:
    """The solver registered as `name`.

    Raises
    ------
    UsageError
        No solver, or more than one, has that name.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if len({point.value for point in points}) > 1:
        raise UsageError(f"solver {name!r} is registered twice: {', '.join(point.value for point in points)}")
    if not points:
        near = difflib.get_close_matches(name, names(), 1)
        raise UsageError(
            f"no solver {name!r}" + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names())}")
        )
    solver: Solver = points[0].load()
    return solver
