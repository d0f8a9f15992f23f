"""Jobs inserted wherever they fit or in an order: correct plans on both horizons, the same whoever computes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.instances.families import generate
from jigsaw_opt.problem.compiled.operations import compile_instance
from jigsaw_opt.problem.compiled.timetable import Timetable, objective_of
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.bounds import lower_bound
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.greedy import greedy_timetable, order_insertion
from jigsaw_opt.solvers.greedy.insertion_lists import windows
from jigsaw_opt.solvers.greedy.order_insertion import OrderInsertion, affordable, inserted_by_ratio, smith_order
from jigsaw_opt.solvers.kernels.order_insertion import insert_in_order
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.placement.assignment import Assignment, ProblemData
from jigsaw_opt.solvers.placement.layout import demands, shapes
from jigsaw_opt.solvers.placement.state import PartialPlacement
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.search.cyclic.candidate_table import CandidateTable
from jigsaw_opt.solvers.search.state.job_insertion import JobInsertion
from jigsaw_opt.solvers.search.state.partial_schedule import PartialSchedule
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extras import needs_fast
from tests.random_instances import GOALS, random_instance


def data_of(instance: Instance) -> ProblemData:
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
    data = data_of(instance)
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
    data = data_of(instance)
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


FINITE = [goal for goal in GOALS if goal[0] == "finite"]


def require_correct(instance: Instance, timetable: Timetable, value: int) -> None:
    """The plan of a timetable passes the checker and has the objective that was stated."""
    assert objective_of(compile_instance(instance), timetable.jobs) == value
    plan = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, None, timetable.jobs, {})
    assert check(instance, plan) == (), instance.name


def drawn_orders(count: int, seed: int, number: int) -> list[list[int]]:
    """Orders that have their beginnings in common with the one before, more or less."""
    draw, order, found = Random(seed), list(range(count)), []
    for _ in range(number):
        order = list(order)
        order.insert(draw.randrange(count), order.pop(draw.randrange(count)))
        found.append(order)
    return found


@pytest.mark.parametrize("goal", FINITE, ids=lambda goal: goal[1])
def test_plans_are_correct(goal: tuple[Horizon, Objective]) -> None:
    inserted = 0
    for seed in range(30):
        instance = random_instance(seed, *goal, operations=24)
        table = data_of(instance)
        insertion = OrderInsertion(table)
        for order in (smith_order(table), smith_order(table)[::-1]):
            value = insertion.insert(order)
            if value < insertion.infinity:
                require_correct(instance, insertion.timetable(), value)
                inserted += 1
    assert inserted >= 35


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 6, 7, 9, 10])
def test_plans_of_crowded_clusters_are_correct(seed: int) -> None:
    instance = generate("crowded", seed)
    table = data_of(instance)
    insertion = OrderInsertion(table)
    value = insertion.insert(smith_order(table))
    assert value < insertion.infinity
    require_correct(instance, insertion.timetable(), value)


def test_what_orders_share_stays_as_if_it_were_inserted_anew() -> None:
    table = data_of(generate("crowded", 7))
    kept = OrderInsertion(table)
    for order in drawn_orders(len(table.demands), seed=1, number=12):
        anew = OrderInsertion(table)
        assert kept.insert(order) == anew.insert(order) < kept.infinity
        assert kept.timetable() == anew.timetable()


def test_fewer_visits_where_only_the_last_jobs_change_places() -> None:
    table = data_of(generate("crowded", 7))
    insertion, order = OrderInsertion(table), smith_order(table)
    insertion.insert(order)
    first = insertion.visits()
    insertion.insert([*order[:-2], order[-1], order[-2]])
    assert 0 < insertion.visits() < first / 4
    insertion.insert([*order[:-2], order[-1], order[-2]])
    assert insertion.visits() == 0


def test_insertion_ends_above_a_limit() -> None:
    table = data_of(generate("crowded", 1))
    insertion, order = OrderInsertion(table), smith_order(table)
    value, partial = insertion.insert(order), insertion.partial()
    assert partial[-1] == value and partial == sorted(partial)
    assert insertion.insert(order, partial) == value
    for position in range(len(order)):
        tight = [*partial[:position], partial[position] - 1, *partial[position + 1 :]]
        assert insertion.insert(order, tight) == insertion.infinity
    assert insertion.insert(order) == value


def test_jobs_ask_for_levels_of_another_shape() -> None:
    instance = generate("crowded", 1)
    table = data_of(instance)
    choices = [shapes(demand) for demand in table.demands]
    insertion, order = OrderInsertion(table, choices), smith_order(table)
    values = {insertion.insert(order)}
    for index, own in enumerate(choices):
        for choice in reversed(range(len(own))):
            insertion.ask([choice if other == index else 0 for other in range(len(choices))])
            value = insertion.insert(order)
            require_correct(instance, insertion.timetable(), value)
            values.add(value)
    assert len(values) > 1
    assert insertion.insert(order) == OrderInsertion(table).insert(order)


def test_a_job_that_memory_admits_nowhere_is_told() -> None:
    instance = generate("crowded", 1)
    small = [replace(server, gpu_memory=1) for server in instance.cluster.servers]
    tiny = replace(instance, cluster=replace(instance.cluster, servers=tuple(small)))
    table = data_of(tiny)
    insertion = OrderInsertion(table)
    assert insertion.insert(smith_order(table)) == insertion.infinity
    assert inserted_by_ratio(table) is None


def test_windows_are_contiguous_and_hold_the_job() -> None:
    table = data_of(generate("crowded", 10))
    for demand in table.demands:
        narrow, wide = windows(table.layout, demand.job)
        assert narrow
        for window in (*narrow, *wide):
            assert list(window.servers) == sorted(window.servers)
            assert sum(window.fewest) <= demand.job.slots <= sum(window.most)
            for counts in (window.fewest, window.most):
                workers = dict(zip(window.servers, counts, strict=True))
                assert table.layout.routes.channel(workers) == window.channel


def test_workers_are_shared_out_in_fixed_numbers_where_the_fabric_is_slow() -> None:
    instance = generate("crowded", 10)
    slow = [replace(server, fabric_bandwidth=1000) for server in instance.cluster.servers]
    table = data_of(replace(instance, cluster=replace(instance.cluster, servers=tuple(slow))))
    job = max((demand.job for demand in table.demands), key=lambda job: job.slots)
    assert job.slots > slow[0].gpus
    assert all(window.fewest == window.most for window in windows(table.layout, job)[0])


def test_the_heuristic_is_no_worse_than_insertion_by_ratio() -> None:
    instance = generate("crowded", 10)
    inserted, greedy = inserted_by_ratio(data_of(instance)), greedy_timetable(compile_instance(instance))
    assert inserted is not None and greedy is not None
    require_correct(instance, inserted[1], inserted[0])
    assert objective_of(compile_instance(instance), greedy.jobs) <= inserted[0]


def test_too_many_visits_are_not_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    table = data_of(generate("crowded", 1))
    assert affordable(table.operations)
    monkeypatch.setattr(order_insertion, "_MOST_VISITS", 10)
    monkeypatch.setattr(order_insertion, "_MOST_COMPILED_VISITS", 10)
    assert not affordable(table.operations)
    assert inserted_by_ratio(table) is None


@needs_fast
def test_the_compiled_function_inserts_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.compiled(insert_in_order) not in (None, insert_in_order)

    def all_inserted() -> list[tuple[int, int, Timetable]]:
        found = []
        for seed in (0, 1, 3, 4, 7, 10):
            table = data_of(generate("crowded", seed))
            insertion = OrderInsertion(table)
            for order in drawn_orders(len(table.demands), seed, number=4):
                found.append((insertion.insert(order), insertion.visits(), insertion.timetable()))
        return found

    fast = all_inserted()
    monkeypatch.setattr(compiled, "compiled", lambda function: None)
    assert fast == all_inserted()
