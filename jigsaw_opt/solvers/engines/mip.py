"""What is asked of an engine for linear and mixed-integer programs, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from jigsaw_opt.formulations.algebra import AlgebraicModel
from jigsaw_opt.solvers.engines.parameters import Parameter

if TYPE_CHECKING:
    from jigsaw_opt.formulations.linear import Floats


class Ending(Enum):
    """Ways in which a search ends."""

    SOLVED = "solved"
    """No solution is better than the best one found by a step or more."""
    INFEASIBLE = "infeasible"
    """The program has no solution."""
    STOPPED = "stopped"
    """A limit, or a cancel."""


class ProgramOutcome(NamedTuple):
    """Outcome of a run of an engine on a program.

    `duals`: by row: what a unit more of the row's side changes the objective by; for programs without integer columns.
    `bound`: lower bound on the objective of every solution.
    """

    ending: Ending
    feasible: bool
    values: Floats
    duals: Floats
    objective: float
    bound: float


@dataclass(frozen=True, slots=True)
class MipTask:
    """One search.

    `step`: solutions that are better by less are of no interest. `offer`: receives the value of every column of each
    better solution. `raise_bound`: receives lower bounds on every solution that is better than those offered by `step`,
    in microseconds, as the engine computes them. `seconds, nodes`: limits on the time and on the nodes of the tree, or
    None. `parameters`: of the engine, by its own names. `log`: receives the engine's log, one line or more at a time;
    or None.
    """

    model: AlgebraicModel
    step: float
    offer: Callable[[Sequence[float]], object]
    raise_bound: Callable[[float], None]
    seconds: float | None
    nodes: int | None
    seed: int
    threads: int
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    log: Callable[[str], None] | None = None

    @property
    def gap(self) -> float:
        """Return the absolute gap at which an engine may call its best solution optimal."""
        return self.step / 2
