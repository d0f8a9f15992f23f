"""Jobs inserted wherever they fit, modulo the period or on the finite horizon."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Instance, Objective
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import SolveState


def ground_of(instance: Instance) -> ProblemData:
    operations = compile_instance(instance)
    asked = demands(operations)
    assert asked is not None
    return ProblemData(operations, asked)


class AnySet:
    """Offers all candidate sets with room."""

    def __init__(self, data: ProblemData, period: int) -> None:
        self.table, self.period = CandidateTable(data), period

    def assignments(self, placement: PartialPlacement, index: int) -> Iterator[Assignment]:
        found = (self.table.assignment(placement, index, each, self.period) for each in self.table.of(index))
        return (assignment for assignment in found if assignment is not None)

    def target(self, index: int) -> Assignment:
        return self.table.of(index)[0].alone


def insert(data: ProblemData, period: int, tries: int = 60) -> Plan | None:
    rng = Random(1)
    policy = AnySet(data, period)
    weights = [policy.table.of(index)[0].length for index in range(len(data.operations.jobs))]
    timetable = JobInsertion(PartialSchedule(data, period), policy, rng).insert_all(
        range(len(weights)), weights, tries, lambda: False
    )
    return None if timetable is None else plan_of(data, timetable)


def plan_of(data: ProblemData, timetable: Timetable) -> Plan | None:
    def ignore(event: Event) -> None:
        """Progress is of no interest here."""

    solve_state = SolveState("insertion", data.operations, Options(), ignore)
    solve_state.offer(timetable)
    return solve_state.result(StoppedBy.COMPLETED).plan


@pytest.mark.parametrize(
    ("family", "seed", "changes"), [("server", 15, {}), ("rack", 7, {"load": 150}), ("pod", 4, {"servers": 8})]
)
def test_what_is_laid_keeps_every_rule(family: str, seed: int, changes: dict[str, int]) -> None:
    instance = generate(family, seed, objective="period", releases=False, **changes)
    data = ground_of(instance)
    least = lower_bound(data.operations).value
    plan = insert(data, 2 * least)
    assert plan is not None
    assert plan.period_us is not None
    assert plan.period_us <= 2 * least
    assert not check(instance, plan)
    assert insert(data, least - 1) is None


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
@pytest.mark.parametrize("seed", [7, 9])
def test_steps_on_the_finite_horizon_keep_every_rule_and_are_never_worse(seed: int, objective: Objective) -> None:
    instance = generate("server", seed, objective=objective)
    data = ground_of(instance)
    insertion, jobs = (
        JobInsertion(PartialSchedule(data, None), AnySet(data, 10**9), Random(1)),
        range(len(data.demands)),
    )
    assert insertion.insert(jobs, [1.0] * len(jobs), 10, lambda: False) == []
    values = [insertion.score(jobs)[0]]
    for first in [*jobs] * 4:
        better = insertion.step(first)
        values.append(insertion.score(jobs)[0])
        assert values[-1] <= values[-2]
        assert better or objective == "makespan" or values[-1] == values[-2]
    plan = plan_of(data, insertion.schedule.timetable())
    assert plan is not None and plan.objective == values[-1] < values[0]
    assert not check(instance, plan)
