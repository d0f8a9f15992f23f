"""The master program of packing: how many groups of servers follow which pattern.

With types of servers ``t``, classes of jobs ``c``, steps ``k`` of a class's value and patterns ``p`` of type ``t(p)``,
which takes ``m_p`` servers, runs ``a_cp`` jobs of class ``c`` and gives them ``r_cp`` of progress together::

    max  sum_ck  weight_c slope_ck z_ck
    s.t. sum_{p: t(p) = t} m_p x_p <= N_t            (servers)
         sum_p a_cp x_p <= M_c                       (jobs)
         sum_k z_ck - sum_p r_cp x_p <= 0            (progress)
         0 <= z_ck <= share_k M_c - share_{k-1} M_c,  x_p >= 0 and integer
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.formulations.linear import Entries, LinearProgram, ProgramBuilder
from jigsaw_opt.problem.packing import PackingProblem, QueuedJobs

Rates = Sequence[Sequence[float]]
"""Rate of each job of a coschedule, by the number of the coschedule."""


class CoscheduledClasses(NamedTuple):
    """A coschedule with the class of each of its jobs."""

    coschedule: int
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServerPattern:
    """The jobs that a group of servers of one type runs.

    `type, servers`: number of the type, and of its servers that the pattern takes. `teams`: coschedules with their
    classes, and how many of each; sorted.
    """

    type: int
    servers: int
    teams: tuple[tuple[CoscheduledClasses, int], ...]

    def jobs(self) -> Counter[int]:
        """Count its jobs by class, ``a_cp``."""
        found: Counter[int] = Counter()
        for team, copies in self.teams:
            for number in team.classes:
                found[number] += copies
        return found

    def progress(self, rates: Rates) -> dict[int, float]:
        """Return the progress by class, ``r_cp``."""
        found: dict[int, float] = {}
        for team, copies in self.teams:
            for number, rate in zip(team.classes, rates[team.coschedule], strict=True):
                found[number] = found.get(number, 0.0) + copies * rate
        return found


class Column(NamedTuple):
    """A column in numbers: its rows and the coefficient in each."""

    rows: tuple[int, ...]
    coefficients: tuple[float, ...]


class Master:
    """Rows and first columns of the master program.

    Parameters
    ----------
    problem
        Cluster and queue.

    Attributes
    ----------
    upper
        Right-hand side of every row: servers, then jobs, then progress.
    costs, widths
        Value of a unit of every ``z``, and its upper bound.
    steps
        Column of every ``z``.
    """

    def __init__(self, problem: PackingProblem) -> None:
        self.types, self.classes = len(problem.types), len(problem.classes)
        self.upper = [
            *(float(t.count) for t in problem.types),
            *(float(c.count) for c in problem.classes),
            *(0.0 for _ in problem.classes),
        ]
        self.costs: list[float] = []
        self.widths: list[float] = []
        self.steps: list[Column] = []
        for number, of_class in enumerate(problem.classes):
            self._value(number, of_class)

    def servers(self, number: int) -> int:
        """Return the row of the servers of a type."""
        return number

    def jobs(self, number: int) -> int:
        """Return the row of the jobs of a class."""
        return self.types + number

    def progress(self, number: int) -> int:
        """Return the row of the progress of a class."""
        return self.types + self.classes + number

    def program(self) -> LinearProgram:
        """Return the linear relaxation with the columns ``z`` alone; it minimises the negative of the value."""
        builder = ProgramBuilder()
        columns = builder.add_columns([-cost for cost in self.costs], upper=self.widths)
        rows = [step.rows[0] for step in self.steps]
        builder.add_rows(Entries(rows, columns, [1.0] * len(rows)), float("-inf"), self.upper)
        return builder.program()

    def _value(self, number: int, of_class: QueuedJobs) -> None:
        reached = 0.0
        for step in of_class.steps:
            self.costs.append(of_class.weight * step.slope)
            # An unlimited share of no jobs is nothing.
            # Slopes fall from step to step, so that the engine fills the steps in their order by itself.
            self.widths.append((step.share - reached) * of_class.count if of_class.count else 0.0)
            self.steps.append(Column((self.progress(number),), (1.0,)))
            reached = step.share


def column(master: Master, pattern: ServerPattern, rates: Rates) -> Column:
    """Return the column of a pattern at given rates of its coschedules."""
    entries = {master.servers(pattern.type): float(pattern.servers)}
    entries.update((master.jobs(c), float(count)) for c, count in pattern.jobs().items())
    entries.update((master.progress(c), -rate) for c, rate in pattern.progress(rates).items())
    return Column(tuple(entries), tuple(entries.values()))
