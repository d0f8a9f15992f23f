"""Cyclic timetables of gangs: found once for each kind of gang, checked, and remembered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from jigsaw_opt.checking import check
from jigsaw_opt.formulations.packing import Gang, Kind, Site, gang_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, StaircaseDepth
from jigsaw_opt.problem.packing import PackingProblem, ServerType
from jigsaw_opt.problem.pieces import cut
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.control import Control
from jigsaw_opt.solvers.greedy.heuristic import timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve import UncheckedPlanError

__all__ = ["Timetables"]

_ITERATIONS = 16
"""Iterations of each job in a period: with more of them the levels of a GPU even out further."""


@dataclass(slots=True)
class Timetables:
    """Timetables of gangs, by what they depend on.

    Parameters
    ----------
    iterations
        Iterations of each job in a period. With 1 every worker keeps its level for ever.

    Attributes
    ----------
    found
        How many were looked for.
    """

    iterations: int = _ITERATIONS
    found: int = field(default=0, init=False)
    _periods: dict[tuple[object, ...], Fraction | None] = field(default_factory=dict, init=False)

    def iteration_us(self, problem: PackingProblem, number: int, gang: Gang) -> Fraction | None:
        """Time in which each job of a gang does an iteration on servers of type `number`; None without a plan."""
        if len(gang.kinds) == 1:
            return gang.period_us  # Alone at full depth there is nothing to decide, and the period is exact.
        key = self._key(problem, number, gang)
        if key not in self._periods:
            self._periods[key] = self._period(problem, number, gang)
            self.found += 1
        return self._periods[key]

    def known(self, problem: PackingProblem, number: int, gang: Gang) -> bool:
        """Whether `iteration_us` has its answer at hand."""
        return len(gang.kinds) == 1 or self._key(problem, number, gang) in self._periods

    def _key(self, problem: PackingProblem, number: int, gang: Gang) -> tuple[object, ...]:
        own = problem.types[number]
        hardware = (replace(own.server, name="", gpus=1), own.bandwidth, own.latency_us)
        return (gang.kinds, gang.site, *hardware)

    def _period(self, problem: PackingProblem, number: int, gang: Gang) -> Fraction | None:
        plans = (self.plan(problem, number, kinds, gang.site) for kinds in _rules(gang.kinds))
        periods = [plan.objective for plan in plans if plan is not None]
        return Fraction(min(periods), self.iterations) if periods else None

    def plan(self, problem: PackingProblem, number: int, kinds: tuple[Kind, ...], site: Site) -> Plan | None:
        """A checked cyclic plan of jobs of these kinds on the same GPUs; None where none is found."""
        instance = self.instance(problem.types[number], problem, kinds, site)
        pieces = cut(instance)
        timetable = next(timetables(pieces), None)
        if timetable is None:
            return None
        control = Control("greedy", pieces, Options(), lambda event: None)
        control.offer(timetable)
        plan = control.result(StoppedBy.COMPLETED).plan
        assert plan is not None
        wrong = check(instance, plan)
        if wrong:
            raise UncheckedPlanError(f"wrong timetable of {kinds}: {wrong[0].message} (rule {wrong[0].rule})")
        return plan

    def instance(
        self, server_type: ServerType, problem: PackingProblem, kinds: tuple[Kind, ...], site: Site
    ) -> Instance:
        """The cyclic instance of jobs of these kinds on the same GPUs."""
        return gang_instance(server_type, [(kind, problem.models[kind.model]) for kind in kinds], site, self.iterations)


def _rules(kinds: tuple[Kind, ...]) -> list[tuple[Kind, ...]]:
    """The kinds as they are, and with the staircase instead of a free rule that admits it."""
    plain = tuple(replace(kind, depth=StaircaseDepth()) if kind.depth == FreeDepth() else kind for kind in kinds)
    return [kinds] if plain == kinds else [kinds, plain]
