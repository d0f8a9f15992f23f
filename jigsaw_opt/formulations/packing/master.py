"""The master program of packing: how many groups of servers follow which pattern.

With types of servers ``t``, classes of jobs ``c`` and patterns ``p`` of type ``t(p)``, which takes ``m_p`` servers,
runs ``a_cp`` jobs of class ``c`` and gives them ``r_cp`` of progress together::

    max  sum_p (sum_c weight_c r_cp) x_p
    s.t. sum_{p: t(p) = t} m_p x_p <= N_t            (servers)
         sum_p a_cp x_p <= M_c                       (jobs)
         x_p >= 0 and integer
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.formulations.linear import NO_ENTRIES, LinearProgram, ProgramBuilder
from jigsaw_opt.problem.packing import PackingProblem

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
    """A column in numbers: its value, and its rows with the coefficient in each."""

    value: float
    rows: tuple[int, ...]
    coefficients: tuple[float, ...]


def master(problem: PackingProblem) -> LinearProgram:
    """Return the linear relaxation, to which patterns come: rows of servers by type, then rows of jobs by class."""
    builder = ProgramBuilder()
    counts = [*(t.count for t in problem.types), *(c.count for c in problem.classes)]
    builder.add_rows(NO_ENTRIES, float("-inf"), list(map(float, counts)))
    return builder.program()


def column(problem: PackingProblem, pattern: ServerPattern, rates: Rates) -> Column:
    """Return the column of a pattern at given rates of its coschedules."""
    value = sum(problem.classes[c].weight * gained for c, gained in pattern.progress(rates).items())
    jobs = {len(problem.types) + c: float(count) for c, count in pattern.jobs().items()}
    return Column(value, (pattern.type, *jobs), (float(pattern.servers), *jobs.values()))
