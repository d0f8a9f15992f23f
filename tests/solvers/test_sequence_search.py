"""The order of operations annealed at a placement, and while jobs move."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.solvers.cpsat.model import build_model, engine_for
from jigsaw_opt.solvers.engines import compiled, magnitude
from jigsaw_opt.solvers.engines.compiled import Numbers
from jigsaw_opt.solvers.greedy.evaluation import Evaluator
from jigsaw_opt.solvers.greedy.heuristic import placements
from jigsaw_opt.solvers.kernels import sequence_annealing
from jigsaw_opt.solvers.kernels.cyclic_annealing import anneal_cyclic_sequence
from jigsaw_opt.solvers.kernels.sequence import Graph, SequenceState
from jigsaw_opt.solvers.kernels.sequence_annealing import anneal_sequence
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import ProblemData
from jigsaw_opt.solvers.placement.layout import Layout, demands
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.search import sequence_search
from jigsaw_opt.solvers.search.moves.load_balancing import LoadBalancer
from jigsaw_opt.solvers.search.moves.sequence_annealing import Relocation
from jigsaw_opt.solvers.search.sequence_search import SequencedSchedule, SequenceSearch
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extras import needs_fast
from tests.extreme_instances import enlarged
from tests.random_instances import random_instance

OBJECTIVES: tuple[Objective, ...] = ("makespan", "weighted_completion", "period")


def start_of(instance: Instance) -> tuple[ProblemData, Timetable] | None:
    """The list schedule of the heuristic's first placement."""
    operations = compile_instance(instance)
    asked = demands(operations)
    assignments = None if asked is None else next(placements(operations, asked), None)
    if asked is None or assignments is None:
        return None
    evaluator, count = Evaluator(operations, Layout(operations)), len(operations.jobs)
    plan = evaluator.timetable(evaluator.evaluate(assignments, [1.0] * count, [0] * count))
    return ProblemData(operations, asked), plan


def never(operations: int) -> bool:
    return False


def control_of(data: ProblemData, plan: Timetable) -> SolveState:
    solve_state = SolveState("test", data.operations, Options(threads=1), lambda event: None)
    assert solve_state.offer(plan)
    return solve_state


def assert_correct(data: ProblemData, sequencing: SequenceSearch, schedule: SequencedSchedule) -> None:
    timetable = sequencing.timetable(schedule)
    assert objective_of(data.operations, timetable.jobs, timetable.period_us) == schedule.value
    plan = control_of(data, timetable).result(StoppedBy.COMPLETED).plan
    assert plan is not None
    assert not check(data.operations.instance, plan)


def instances(objective: Objective) -> list[Instance]:
    """Small ones of all kinds, and servers with many operations."""
    horizon: Horizon = "cyclic" if objective == "period" else "finite"
    small = [random_instance(seed, horizon, objective, operations=16) for seed in range(60)]
    return small + [generate("server", seed, objective=objective) for seed in range(12)]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_another_order_keeps_every_rule_and_is_no_worse(objective: Objective) -> None:
    better = found = 0
    for number, instance in enumerate(instances(objective)):
        start = start_of(instance)
        if start is None:
            continue
        data, plan = start
        sequencing = SequenceSearch(data, Random(number))
        given = sequencing.given(plan)
        after = sequencing.anneal(given, given.assignments, 150, 0.003, never)
        assert_correct(data, sequencing, after)
        assert after.value <= given.value == objective_of(data.operations, plan.jobs, plan.period_us)
        found, better = found + 1, better + (after.value < given.value)
    assert found > 50
    assert better > 6


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_ends_where_what_it_is_worth_is_out_of_reach(objective: Objective) -> None:
    start = start_of(generate("server", 1, objective=objective))
    assert start is not None
    data, plan = start

    def run(worth: float) -> tuple[SequencedSchedule, int]:
        swept: list[int] = []

        def count(operations: int) -> bool:
            swept.append(operations)
            return False

        sequencing = SequenceSearch(data, Random(1))
        given = sequencing.given(plan)
        after = sequencing.anneal(given, given.assignments, 300, 0.003, count, worth)
        assert_correct(data, sequencing, after)
        return after, sum(swept)

    value = objective_of(data.operations, plan.jobs, plan.period_us)
    to_the_end, most = run(inf)
    within_reach, all_of_them = run(value)
    assert (list(within_reach.start), all_of_them) == (list(to_the_end.start), most)
    out_of_reach, few = run(value / 2)
    assert value / 2 < out_of_reach.value <= value
    assert 0 < few < most / 10


def best_at_placement(data: ProblemData, plan: Timetable) -> int:
    """The best objective at the placement of a plan, by the exact model; of a period within a thousandth."""
    low, best = control_of(data, plan).bound, plan
    while best.period_us is not None and low + 1 < best.period_us and low < 0.999 * best.period_us:
        period = (low + best.period_us) // 2
        shorter = timed_anew(data, best, period)
        best, low = (best, period) if shorter is None else (shorter, low)
    if best.period_us is None:
        best = timed_anew(data, plan, objective_of(data.operations, plan.jobs, None)) or plan
    return objective_of(data.operations, best.jobs, best.period_us)


def timed_anew(data: ProblemData, plan: Timetable, most: int) -> Timetable | None:
    """The best plan within an objective at the placement of a plan, or None where none is found soon."""
    from ortools.sat.python import cp_model

    solve_state = control_of(data, plan)
    model = build_model(solve_state, data.operations, 0, most)
    model.hint(plan)
    hinted = dict(zip(model.proto.proto.solution_hint.vars, model.proto.proto.solution_hint.values, strict=True))
    for literal in (literal for job in model.jobs for literal in job.assigned.values()):
        model.proto.add(literal == hinted[literal.index])
    model.proto.clear_hints()  # type: ignore[no-untyped-call]
    engine = engine_for(solve_state, data.operations, 1, 3.0)
    return model.plan(engine.value) if engine.solve(model.proto) in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_finds_the_best_order_and_levels_of_a_placement(objective: Objective) -> None:
    """The exact model times all jobs anew; it has the same freedom where no slots are balanced."""
    pytest.importorskip("ortools")
    reached = least = 0
    for seed in range(5 if objective == "period" else 15):
        start = start_of(generate("tiny", seed, objective=objective))
        if start is None or any(job.rule.balance is not None for job in start[0].operations.jobs):
            continue
        data, plan = start
        sequencing = SequenceSearch(data, Random(seed))
        given = sequencing.given(plan)
        value = min(sequencing.anneal(given, given.assignments, 3000, heat, never).value for heat in (0.1, 0.03, 0.01))
        optimum = best_at_placement(data, plan)
        assert value >= optimum or (objective == "period" and value >= 0.999 * optimum)
        reached, least = reached + value, least + optimum
    assert least > 0
    assert reached <= 1.003 * least


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_jobs_that_move_keep_every_rule(objective: Objective) -> None:
    moved = found = 0
    for number, instance in enumerate(instances(objective)[40:]):
        start = start_of(instance)
        if start is None:
            continue
        data, plan = start
        rng = Random(number)
        sequencing = SequenceSearch(data, rng)
        given, watched = sequencing.given(plan), list[SequencedSchedule]()
        balancer = LoadBalancer(data, rng, 1 + given.value)
        after = Relocation(balancer, sequencing, rng).run(given, 40, 0.03, watched.append, never)
        for schedule in watched:
            assert_correct(data, sequencing, schedule)
        assert after.value == min([given.value, *(schedule.value for schedule in watched)])
        found += 1
        moved += [assignment.gpus for assignment in after.assignments] != [
            assignment.gpus for assignment in given.assignments
        ]
    assert found > 15
    assert moved > 4


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_stops_when_told(objective: Objective) -> None:
    start = start_of(generate("server", 2, objective=objective))
    assert start is not None
    data, plan = start
    asked: list[int] = []

    def soon(operations: int) -> bool:
        asked.append(operations)
        return len(asked) == 3

    sequencing = SequenceSearch(data, Random(0))
    given = sequencing.given(plan)
    after = sequencing.anneal(given, given.assignments, 10**9, 0.01, soon)
    assert len(asked) == 3
    assert all(operations > 0 for operations in asked)
    assert_correct(data, sequencing, after)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_parts_do_as_one_does(monkeypatch: pytest.MonkeyPatch, objective: Objective) -> None:
    def run(worth: float) -> tuple[int, list[int], int]:
        swept: list[int] = []

        def count(operations: int) -> bool:
            swept.append(operations)
            return False

        sequencing = SequenceSearch(data, Random(1))
        given = sequencing.given(plan)
        after = sequencing.anneal(given, given.assignments, 300, 0.01, count, worth * given.value)
        return after.value, list(map(int, after.sequence)), sum(swept)

    for seed in range(4):
        start = start_of(generate("server", seed, objective=objective))
        assert start is not None
        data, plan = start
        whole = [run(worth) for worth in (1.0, 0.9)]
        with monkeypatch.context() as patch:
            patch.setattr(sequence_search, "_VISITS", 7 * SequenceSearch(data, Random(1)).size)
            assert [run(worth) for worth in (1.0, 0.9)] == whole


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_orders_beyond_64_bits_are_annealed_exactly(objective: Objective) -> None:
    better = 0
    for seed in range(3):
        start = start_of(enlarged(generate("server", seed, objective=objective)))
        assert start is not None
        data, plan = start
        sequencing = SequenceSearch(data, Random(seed))
        given = sequencing.given(plan)
        assert given.value > 2**64
        after = sequencing.anneal(given, given.assignments, 200, 0.003, never)
        assert_correct(data, sequencing, after)
        better += after.value < given.value
    assert better > 0


def schedules(family: str, seed: int, steps: int, **changes: object) -> list[tuple[int, Timetable]]:
    start = start_of(generate(family, seed, **changes))
    assert start is not None
    data, plan = start
    sequencing = SequenceSearch(data, Random(seed))
    schedule = sequencing.given(plan)
    found = []
    for heat in (0.01, 0.001):
        schedule = sequencing.anneal(schedule, schedule.assignments, steps, heat, never)
        found.append((schedule.value, sequencing.timetable(schedule)))
    return found


CASES = [("tiny", 5, 400), ("server", 1, 300), ("server", 2, 300), ("server", 7, 300), ("rack", 3, 60)]


@needs_fast
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_compiled_annealing_does_as_it_does_uncompiled(monkeypatch: pytest.MonkeyPatch, objective: Objective) -> None:
    for function in (anneal_sequence, anneal_cyclic_sequence):
        assert compiled.compiled(function) not in (None, function)
    fast = [schedules(*case, objective=objective) for case in CASES]
    monkeypatch.setattr(compiled, "compiled", lambda function: None)
    assert [schedules(*case, objective=objective) for case in CASES] == fast


@pytest.mark.parametrize("objective", OBJECTIVES[:2])
def test_tails_and_checkpoints_spare_passes_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch, objective: Objective
) -> None:
    monkeypatch.setattr(compiled, "compiled", lambda function: None)
    swept: list[int] = []
    forward_pass = sequence_annealing.forward_pass

    def counted(graph: Graph, state: SequenceState, sequence: Numbers, first: int, *rest: Any) -> Any:
        value, reached = forward_pass(graph, state, sequence, first, *rest)
        swept.append(reached - first)
        return value, reached

    monkeypatch.setattr(sequence_annealing, "forward_pass", counted)
    short = [schedules(*case, objective=objective) for case in CASES]
    fewer = sum(swept)
    swept.clear()
    monkeypatch.setattr(sequence_annealing, "_TRIES", 1 << 60)
    monkeypatch.setattr(sequence_search, "_STRIDE", 1 << 60)
    assert [schedules(*case, objective=objective) for case in CASES] == short
    assert fewer < sum(swept) if objective == "makespan" else fewer == sum(swept)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_times_too_long_for_64_bits_are_left_to_python(monkeypatch: pytest.MonkeyPatch, objective: Objective) -> None:
    expected = schedules("server", 1, 100, objective=objective)

    def fail(function: object) -> None:
        assert function not in (anneal_sequence, anneal_cyclic_sequence), "not to be asked for"

    monkeypatch.setattr(magnitude, "_ORDERS", {"finite": 1, "cyclic": 1})
    monkeypatch.setattr(compiled, "compiled", fail)
    assert schedules("server", 1, 100, objective=objective) == expected
