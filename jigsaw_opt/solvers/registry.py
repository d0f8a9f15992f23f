"""The solvers that are installed, ours and third parties', found by entry point."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Report, Result

if TYPE_CHECKING:
    from jigsaw_opt.solvers.control import Control

__all__ = [
    "GROUP",
    "CallableSolver",
    "ControlledSolver",
    "Solver",
    "find",
    "load",
    "names",
    "nearest",
    "registered",
]

GROUP = "jigsaw_opt.solvers"


class _Described(Protocol):
    """What every solver says of itself."""

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


class ControlledSolver(_Described, Protocol):
    """A solver that works on the cut instance and the books that `solve` keeps."""

    def run(self, control: Control) -> Result:
        """Solve ``control.pieces``; the plan is checked by the caller."""


class CallableSolver(_Described, Protocol):
    """A solver that cuts the instance and keeps its books itself."""

    def __call__(self, instance: Instance, options: Options, report: Report) -> Result:
        """Solve the instance; the plan is checked by the caller."""


Solver = ControlledSolver | CallableSolver
"""What an entry point of the group ``jigsaw_opt.solvers`` names; loading it must not import its engine."""


def names() -> tuple[str, ...]:
    """Names of all registered solvers, sorted; none of them is loaded."""
    return registered(GROUP)


@cache
def find(name: str) -> Solver:
    """The solver registered as `name`.

    Raises
    ------
    UsageError
        No solver, or more than one, has that name.
    """
    solver: Solver = load(GROUP, "solver", name)
    return solver


def registered(group: str) -> tuple[str, ...]:
    """Names of all entry points of a group, sorted; none of them is loaded."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def load(group: str, kind: str, name: str) -> Any:
    """What is registered as `name` in a group of entry points, whose members errors call by their `kind`.

    Raises
    ------
    UsageError
        Nothing, or more than one thing, has that name.
    """
    points = [point for point in entry_points(group=group) if point.name == name]
    if len({point.value for point in points}) > 1:
        raise UsageError(f"{kind} {name!r} is registered twice: {', '.join(point.value for point in points)}")
    if not points:
        raise UsageError(f"no {kind} {name!r}; {nearest(name, registered(group))}")
    return points[0].load()


def nearest(word: str, known: Iterable[str]) -> str:
    """What may have been meant by an unknown word, or else what there is."""
    known = tuple(known)
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none'}"
