"""Jobs inserted modulo the period wherever they fit."""

from __future__ import annotations

from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.instance import Instance
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import demands
from jigsaw_opt.solvers.placement.state import fullest_us
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.cyclic.candidate_table import BestFitPolicy, CandidateTable
from jigsaw_opt.solvers.search.cyclic.modulo_insertion import ModuloInsertion
from jigsaw_opt.solvers.solve_state import SolveState


def ground_of(instance: Instance) -> ProblemData:
    operations = compile_instance(instance)
    asked = demands(operations)
    assert asked is not None
    return ProblemData(operations, asked)


def insert(data: ProblemData, period: int, tries: int = 60) -> Plan | None:
    rng = Random(1)
    candidate_sets = BestFitPolicy(CandidateTable(data), period, rng)
    weights = [float(assignment.iteration_us * assignment.job.iterations) for assignment in candidate_sets.quickest()]
    timetable = ModuloInsertion(data, candidate_sets, period, rng).insert_all(
        range(len(weights)), weights, tries, lambda: False
    )
    if timetable is None:
        return None

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


def test_what_is_offered_is_short_enough_and_has_the_time() -> None:
    data = ground_of(generate("cluster", 3, servers=8, load=100))
    candidate_sets = BestFitPolicy(CandidateTable(data), 10**9, Random(0))
    longest = max(assignment.iteration_us * assignment.job.iterations for assignment in candidate_sets.quickest())
    schedule = ModuloInsertion(data, candidate_sets, longest, Random(0)).schedule
    tight = BestFitPolicy(CandidateTable(data), longest, Random(0))
    for index in range(len(data.operations.jobs)):
        assignments = list(tight.assignments(schedule.placement, index))
        assert assignments
        assert all(fullest_us([assignment]) <= longest for assignment in assignments)
        lengths = [
            assignment.iteration_us
            for assignment in BestFitPolicy(CandidateTable(data), 10**9, Random(0)).assignments(
                schedule.placement, index
            )
        ]
        assert min(lengths) >= tight.quickest()[index].iteration_us


def test_slow_gpus_are_left_to_jobs_that_they_are_fast_enough_for() -> None:
    data = ground_of(generate("cluster", 3, servers=8, load=100, widths=(8,)))
    type_of = data.layout.type_of

    def types(period: int) -> list[str]:
        candidate_sets = BestFitPolicy(CandidateTable(data), period, Random(0))
        placement = ModuloInsertion(data, candidate_sets, period, Random(0)).schedule.placement
        return [type_of[assignment.gpus[0]] for assignment in candidate_sets.assignments(placement, 0)]

    quickest = BestFitPolicy(CandidateTable(data), 10**9, Random(0)).quickest()[0]
    length = quickest.iteration_us * quickest.job.iterations
    assert types(4 * length)[0] == "a100"
    assert types(8 * length)[0] == "v100"
    assert set(types(length)) == {"h200"}
