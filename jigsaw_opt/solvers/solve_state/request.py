"""What a solve is asked: an instance, options, first plans, and what judges every plan; and what a method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Protocol

from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, StoppedBy

if TYPE_CHECKING:
    from jigsaw_opt.solvers.solve_state.state import SolveState

Condition = Callable[[Operations, Timetable], bool]
"""Tells whether a plan that lists all iterations is taken. Bounds stay those of all plans."""


class Opening(ABC):
    """What offers plans before a method begins.

    `phased`: whether it is for methods that make phased plans, or for those that list all iterations; None for both.
    `keeps`: whether something of an old plan stays as it is, so that the solve ends with what this offers.
    `from_phases`: whether it begins with a phased plan.
    """

    __slots__ = ()
    phased: ClassVar[bool | None] = False

    @property
    def keeps(self) -> bool:
        """Whether something stays."""
        return False

    @property
    def from_phases(self) -> bool:
        """Whether it begins with a phased plan."""
        return self.phased is True

    @abstractmethod
    def offer(self, solve_state: SolveState) -> StoppedBy | None:
        """Offer plans; return why the solve ends with them, or None where the method goes on."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a solve is asked.

    `openings`: what offers first plans, in this order. `conditions`: what judges every plan.
    """

    instance: Instance
    options: Options = field(default_factory=Options)
    openings: tuple[Opening, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Solver(Protocol):
    """What an entry point of the group ``jigsaw_opt.solvers`` names; loading it must not import its engine."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def display_name(self) -> str:
        """One line for a list of solvers."""

    def unavailable(self) -> str | None:
        """Return the ``pip install`` argument that is missing, or None where the engine is installed."""

    def unsupported(self, instance: Instance) -> str | None:
        """Return why it does not take this instance, or None where it does."""

    def run(self, solve_state: SolveState) -> Result:
        """Solve ``solve_state.operations``; the plan is checked by the caller."""


class GeneralSolver:
    """Description that solvers share which take every instance and need no engine."""

    __slots__ = ()
    lacks: ClassVar[tuple[str, ...]] = ()
    memory_in_time: ClassVar[bool] = True

    def unavailable(self) -> str | None:
        """Return None: no engine is missing."""
        return None

    def unsupported(self, instance: Instance) -> str | None:
        """Return None: jobs of both kinds are taken, on both horizons."""
        return None


class OrtoolsSolver(GeneralSolver):
    """Description that all solvers on CP-SAT share."""

    __slots__ = ()
    engines: ClassVar[tuple[str, ...]] = ("cpsat",)

    def unavailable(self) -> str | None:
        """Return the pip argument of OR-Tools where it is missing, else None."""
        return None if find_spec("ortools") else "ortools>=9.15,<10"
