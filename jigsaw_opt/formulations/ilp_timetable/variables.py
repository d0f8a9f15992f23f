"""The variables of the mixed-integer model of the finite horizon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jigsaw_opt.formulations.cpsat_timetable.variables import Ground, Window
from jigsaw_opt.formulations.program import Expression, Program
from jigsaw_opt.problem.pieces import PieceGraph

if TYPE_CHECKING:
    import pulp

__all__ = ["Exchange", "Ground", "JobVariables", "Window", "add_any", "add_both"]


def add_any(model: Program, literal: pulp.LpVariable, literals: Sequence[pulp.LpVariable]) -> None:
    """State that a 0-1 variable is 1 exactly where one of the others is."""
    model.add(model.total(literals) >= literal)
    for one in literals:
        model.add(literal >= one)


def add_both(model: Program, name: str, literals: Sequence[pulp.LpVariable]) -> pulp.LpVariable:
    """A 0-1 variable that is 1 exactly where all the others are."""
    literal = model.binary(name)
    model.add(literal >= model.total(literals) - (len(literals) - 1))
    for one in literals:
        model.add(literal <= one)
    return literal


@dataclass(slots=True)
class Exchange:
    """The transfer of one bucket in one iteration of a job that may use links."""

    start: pulp.LpVariable
    duration: Expression
    end: Expression


@dataclass(slots=True)
class JobVariables:
    """Variables of one job. A worker is known by its GPU: workers of a job are alike and on different GPUs.

    Parameters
    ----------
    number, job, window
        What the variables stand for.
    here
        ``here[g]``: the job has a worker on GPU ``g``; only GPUs that it may use.
    used
        ``used[s]``: the job has a worker on server ``s``.
    links
        ``links[k]``: transfers of the job use link ``k``.
    levels
        ``levels[i][g][d]``: the worker on ``g`` has level ``d`` in iteration ``i``.
    starts
        ``starts[i][g]``: start of its block; without a meaning where there is no worker.
    ends
        ``ends[i]``: moment from which iteration ``i + 1`` may start.
    exchanges
        ``exchanges[i][b-1]``, empty where the job can use no link.
    fewest, shortest
        Least number of contributors and least duration of each bucket's transfer.
    """

    number: int
    job: PieceGraph
    window: Window
    here: dict[int, pulp.LpVariable] = field(default_factory=dict)
    used: dict[int, pulp.LpVariable] = field(default_factory=dict)
    links: dict[int, pulp.LpVariable] = field(default_factory=dict)
    levels: list[dict[int, dict[int, pulp.LpVariable]]] = field(default_factory=list)
    starts: list[dict[int, pulp.LpVariable]] = field(default_factory=list)
    ends: list[pulp.LpVariable] = field(default_factory=list)
    exchanges: list[list[Exchange]] = field(default_factory=list)
    fewest: list[int] = field(default_factory=list)
    shortest: list[int] = field(default_factory=list)

    def on_server(self, ground: Ground, server: int) -> Sequence[pulp.LpVariable]:
        """Placement variables of the GPUs of one server."""
        return [literal for g, literal in self.here.items() if ground.server(g) == server]

    def earliest(self, i: int) -> int:
        """No block of iteration `i` starts earlier, in microseconds."""
        return self.window.release + i * self.window.iteration

    def latest(self, i: int) -> int:
        """Iteration `i` ends no later, in microseconds."""
        return self.window.deadline - (self.job.iterations - 1 - i) * self.window.iteration
