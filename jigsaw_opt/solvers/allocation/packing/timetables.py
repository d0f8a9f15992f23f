"""Cyclic timetables of coschedules: found once for each kind of coschedule, checked, and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from jigsaw_opt.formulations.packing import Coschedule, coschedule_instance, with_cheapest_levels
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.job import FreeDepth, StaircaseDepth
from jigsaw_opt.problem.operations import Operations, compile_instance
from jigsaw_opt.problem.packing import PackingProblem
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.solvers.correct import require_correct
from jigsaw_opt.solvers.greedy.heuristic import timetables
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState

__all__ = ["ITERATIONS", "Timetables", "cyclic_plan", "shortest_period"]

ITERATIONS = 32
"""Iterations of each job in a period: with more of them the levels of a GPU even out further."""


@dataclass(slots=True)
class Timetables:
    """Timetables of coschedules, by what they depend on.

    `iterations`: iterations of each job in a period. With 1 every worker keeps its level for ever. `found`: number of
    timetables that were searched for.
    """

    iterations: int = ITERATIONS
    found: int = field(default=0, init=False)
    _periods: dict[tuple[object, ...], Fraction | None] = field(default_factory=dict, init=False)

    def iteration_us(self, problem: PackingProblem, number: int, coschedule: Coschedule) -> Fraction | None:
        """Return the time in which each job of a coschedule does an iteration, in microseconds; None without a plan.

        `coschedule`: kinds of jobs that share GPUs.
        """
        if len(coschedule.kinds) == 1:
            return coschedule.period_us  # Alone at full depth there is nothing to decide, and the period is exact.
        own = problem.types[number]
        key = (coschedule.kinds, coschedule.site, altered(own.server, name="", gpus=1), own.bandwidth, own.latency_us)
        if key not in self._periods:
            members = [(kind, problem.models[kind.model]) for kind in coschedule.kinds]
            period = shortest_period(coschedule_instance(own, members, coschedule.site, self.iterations))
            self._periods[key] = None if period is None else Fraction(period, self.iterations)
            self.found += 1
        return self._periods[key]


def shortest_period(instance: Instance) -> int | None:
    """Return the period of the shortest plan of a cyclic instance that was found; None where none was.

    List scheduling begins from levels near the staircase. Where a rule is free it begins also from the staircase
    itself, which the plain free rule allows, and from the levels that keep GPUs busy least.
    """
    plans = [plan for plan in map(partial(cyclic_plan, instance), _variants(instance)) if plan is not None]
    return min((plan.objective for plan in plans), default=None)


def cyclic_plan(instance: Instance, operations: Operations) -> Plan | None:
    """Return a checked plan of a cyclic instance by list scheduling; None where none was found."""
    timetable = next(timetables(operations), None)
    if timetable is None:
        return None
    solve_state = SolveState("greedy", compile_instance(instance), Options(), lambda event: None)
    solve_state.offer(timetable)
    plan = solve_state.result(StoppedBy.COMPLETED).plan
    assert plan is not None
    require_correct(instance, plan, "list scheduling")
    return plan


def _variants(instance: Instance) -> Iterator[Operations]:
    operations = compile_instance(instance)
    yield operations
    plain = tuple(altered(j, depth=StaircaseDepth()) if j.depth == FreeDepth() else j for j in instance.data_parallel)
    if plain != instance.jobs:
        yield compile_instance(altered(instance, jobs=plain))
    gpu_type = instance.cluster.servers[0].gpu_type
    cheapest = tuple(with_cheapest_levels(job, gpu_type) for job in operations.jobs)
    if cheapest != operations.jobs:
        yield replace(operations, jobs=cheapest)
