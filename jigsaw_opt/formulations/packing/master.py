"""The master program of packing: how many groups of servers follow which pattern.

With types of servers ``t``, classes of jobs ``c`` and patterns ``p`` of type ``t(p)``, which takes ``m_p`` servers,
runs ``a_cp`` jobs of class ``c`` and gives them ``r_cp`` of progress together::

    max  sum_p (sum_c weight_c r_cp) x_p
    s.t. sum_{p: t(p) = t} m_p x_p <= N_t            (servers)
         sum_p a_cp x_p <= M_c                       (jobs)
         x_p >= 0 and integer

The pricing program finds the best pattern of a type of servers at given prices. GPUs of a server are alike, and its
fabric is no contended resource, so its coschedules do not disturb each other, and the value of a pattern is the sum of
theirs. The best pattern is a knapsack over the GPUs of a server::

    f(0) = 0,   f(g) = max_s f(g - s) + v(s)     with  v(s) = max over coschedules of s GPUs of their value

A coschedule is worth the progress that it gives, less the prices of its jobs. A coschedule of several servers takes
all but the last of them wholly, and the rest of that one is filled in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jigsaw_opt.formulations.linear import NO_ENTRIES, LinearProgram, ProgramBuilder
from jigsaw_opt.formulations.packing.coscheduling import Coschedule, JobKind
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


_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Prices:
    """Dual prices, by type or class.

    `servers`: price of a server by type. `jobs`: price of a job by class.
    """

    servers: Sequence[float]
    jobs: Sequence[float]


@dataclass(frozen=True, slots=True)
class Valued:
    """A team and what it is worth."""

    value: float
    team: CoscheduledClasses
    servers: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Priced:
    """A pattern and what it is worth beyond the price of its servers."""

    value: float
    pattern: ServerPattern


@dataclass(frozen=True, slots=True)
class Pricing:
    """Best patterns of one type of servers.

    `number, gpus`: number of the type, and GPUs of a server. `coschedules`: all coschedules of the problem by number,
    and of these the numbers of those on this type. `members, weights`: classes by kind, and the worth of a unit of
    progress by class.
    """

    number: int
    gpus: int
    coschedules: Sequence[Coschedule]
    on_type: Sequence[int]
    members: dict[JobKind, list[int]]
    weights: Sequence[float]

    def patterns(self, prices: Prices, rates: Rates, counts: Sequence[int]) -> Iterator[Priced]:
        """Yield for each number of GPUs the pattern filled with its best coschedule; the best is among them.

        `counts`: jobs by class. No coschedule takes more of a class, but a pattern may: that its coschedules are chosen
        one by one makes pricing easy, and the bound that follows from it no less true.
        """
        best = self.best_teams(prices, rates, counts)
        fill = _fill({size: found for size, found in best.items() if size <= self.gpus}, self.gpus)
        for size, lead in best.items():
            copies = max(1, self.gpus // size)
            # What is left of the servers once the copies have their GPUs.
            rest = fill[lead.servers * self.gpus - copies * size]
            teams = Counter({lead.team: copies}) + rest.teams
            yield self._pattern(prices, teams, lead.servers, copies * lead.value + rest.value)
        if fill[-1].teams:
            yield self._pattern(prices, fill[-1].teams, 1, fill[-1].value)

    def best_teams(self, prices: Prices, rates: Rates, counts: Sequence[int]) -> dict[int, Valued]:
        """Return the team of most value by number of GPUs, of those that are worth anything."""
        best: dict[int, Valued] = {}
        terms = {
            kind: [(self.weights[c], prices.jobs[c], c) for c in own if counts[c]] for kind, own in self.members.items()
        }
        for number in self.on_type:
            coschedule = self.coschedules[number]
            value = 0.0
            classes: tuple[int, ...] = ()
            for kind, rate in zip(coschedule.kinds, rates[number], strict=True):
                # A class with one job cannot be in the coschedule twice.
                worth, chosen = _choose(terms[kind], rate, [c for c in classes if counts[c] < 2])
                value, classes = value + worth, (*classes, chosen)
            size = coschedule.site.gpus
            if value > 0.0 and (size not in best or value > best[size].value):
                best[size] = Valued(value, CoscheduledClasses(number, classes), coschedule.site.servers, size)
        return best

    def _pattern(self, prices: Prices, teams: Counter[CoscheduledClasses], servers: int, value: float) -> Priced:
        pattern = ServerPattern(self.number, servers, tuple(sorted(teams.items())))
        return Priced(value - servers * prices.servers[self.number], pattern)


def _choose(terms: list[tuple[float, float, int]], rate: float, taken: list[int]) -> tuple[float, int]:
    """Return the most that a job of a kind is worth at a rate, and its class; minus infinity for none left."""
    return max(((rate * worth - price, c) for worth, price, c in terms if c not in taken), default=(_NEVER, -1))


class _FilledServer(NamedTuple):
    value: float
    teams: Counter[CoscheduledClasses]


def _fill(best: dict[int, Valued], gpus: int) -> list[_FilledServer]:
    """Return the most valuable teams on 0, 1, ... `gpus` GPUs."""
    filled = [_FilledServer(0.0, Counter())]
    for room in range(1, gpus + 1):
        found = filled[-1]
        for size, valued in best.items():
            before = filled[room - size] if size <= room else found
            if size <= room and before.value + valued.value > found.value:
                found = _FilledServer(before.value + valued.value, before.teams + Counter([valued.team]))
        filled.append(found)
    return filled
