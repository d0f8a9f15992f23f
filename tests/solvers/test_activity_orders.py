"""Orders of placed activities annealed: every rule kept, never worse, the same in Python and compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.problem import Edge, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob, TaskGraphTransfer
from jigsaw_opt.problem.compiled.operations import Operations, compile_instance
from jigsaw_opt.problem.instance import Horizon, Instance, Objective
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities
from jigsaw_opt.solvers.activities.held_memory import HeldMemory
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.orders.annealing import AnnealedOrder, OrderSearch
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.activities.ranks import contracted, with_delays
from jigsaw_opt.solvers.activities.repeating import repeated
from jigsaw_opt.solvers.activities.timetables import timetable_of
from jigsaw_opt.solvers.engines import compiled
from jigsaw_opt.solvers.kernels.activity_annealing import anneal_activities
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from tests.extras import needs_fast
from tests.random_task_graphs import random_task_graph_instance
from tests.solvers.test_cpsat_task_graphs import ft06, instance_of, one_server, pipeline

HORIZONS: list[tuple[Horizon, Objective]] = [
    ("finite", "makespan"),
    ("finite", "weighted_completion"),
    ("cyclic", "period"),
]


class Start:
    """The reserve of a first placement as a plan, which does one thing after the other: poor, so there is room."""

    def __init__(self, operations: Operations) -> None:
        self.operations, placement = operations, next(iter(placements(operations, 0)))
        self.jobs = PlacedJobs(operations, placement)
        starts, self.order = self.jobs.scheduler.run(self.jobs.ranks.rank("in_order"))
        ends = [start + length for start, length in zip(starts, self.jobs.flat.duration_us, strict=True)]
        self.value, self.starts = max(ends), starts
        self.weights = operations.weights if operations.instance.objective == "weighted_completion" else ()
        if self.weights:
            last = [0] * len(self.weights)
            for end, job in zip(ends, self.jobs.flat.job, strict=True):
                last[job] = max(last[job], end)
            self.value = sum(weight * end for weight, end in zip(self.weights, last, strict=True))
        self.cyclic = operations.horizon == "cyclic"
        if self.cyclic:
            found = repeated(self.jobs.flat, self.order, 10**9)
            assert found is not None
            self.value, self.starts = found

    def anneal(self, steps: int, seed: int = 0, hot: float = 0.01) -> AnnealedOrder:
        search = OrderSearch(self.jobs.flat, self.weights, self.cyclic)
        return search.anneal(self.order, self.starts, steps, hot, seed, lambda visits: False)


def starts_of(instance: Instance) -> Start | None:
    operations = compile_instance(replace(instance, jobs=instance.task_graph_jobs))
    return Start(operations) if next(iter(placements(operations, 0)), None) is not None else None


def assert_right(start: Start, found: AnnealedOrder) -> None:
    """The order keeps waits and memory, and the plan that it makes has the value that it says, or a better one."""
    place = {activity: number for number, activity in enumerate(found.sequence)}
    assert sorted(place) == list(range(len(found.starts)))
    assert all(place[arc.before] < place[arc.after] for arc in start.jobs.flat.arcs if arc.periods == 0)
    memory, period, starts = HeldMemory(start.jobs.flat), None, found.starts
    for activity in found.sequence:
        assert memory.fits(activity)
        memory.do(activity)
    if start.cyclic:
        repeats = repeated(start.jobs.flat, found.sequence, found.value)
        assert repeats is not None
        period, starts = repeats
    timetable = timetable_of(start.operations, start.jobs.network.jobs, start.jobs.placement.gpus, starts, period)
    solve_state = SolveState("test", start.operations, Options(threads=1), lambda event: None)
    solve_state.offer(timetable)
    result = solve_state.result(StoppedBy.COMPLETED)
    assert result.plan is not None
    assert not check(start.operations.instance, result.plan)
    assert result.plan.objective <= found.value <= start.value
    assert start.cyclic or result.plan.objective == found.value


@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_another_order_keeps_every_rule_and_is_no_worse(horizon: Horizon, objective: Objective) -> None:
    found = better = 0
    for seed in range(40):
        start = starts_of(random_task_graph_instance(seed, horizon, objective))
        if start is not None:
            after = start.anneal(200, seed)
            assert_right(start, after)
            found, better = found + 1, better + (after.value < start.value)
    assert found > 20
    assert better > 0


def test_a_job_shop_comes_to_its_optimum() -> None:
    start = starts_of(instance_of(one_server(6), ft06()))
    assert start is not None
    after = start.anneal(6000, 1, 0.03)
    assert_right(start, after)
    assert after.value <= 57


@pytest.mark.parametrize("memory", [3, 4, 6])
def test_a_pipeline_never_holds_more_than_it_may(memory: int) -> None:
    job = TaskGraphJob("pipe", pipeline(3, 6, 1, "slot"), 1)
    start = starts_of(instance_of(one_server(3, memory), job, horizon="cyclic"))
    assert start is not None
    after = start.anneal(1500)
    assert_right(start, after)
    # The work of a stage and the bubbles of 1F1B.
    assert after.value == 24


@pytest.mark.parametrize("seed", range(20))
def test_what_only_delays_others_is_left_out_and_comes_back(seed: int) -> None:
    start = starts_of(random_task_graph_instance(seed))
    if start is None:
        return
    flat = start.jobs.flat
    small, kept = contracted(flat)
    found = with_delays(flat, kept, [start.starts[activity] for activity in kept])
    assert all(found[arc.after] >= found[arc.before] + arc.length_us for arc in flat.arcs)
    assert all(found[activity] <= start.starts[activity] for activity in range(len(found)))
    assert all(flat.resources[a] or a in kept or any(arc.before == a for arc in flat.arcs) for a in range(len(found)))
    assert all(found[kept[b]] >= found[kept[a]] + length for a, b, length, _ in small.arcs)


def test_transfers_within_a_server_are_mere_delays() -> None:
    chain = tuple(TaskGraphBlock(name, (name,), {"v": 2}) for name in "ab")
    edges = (Edge("a", "t"), Edge("t", "b"))
    shape = TaskGraph((Slot("a"), Slot("b")), chain, (TaskGraphTransfer("t", 0, "a", "b"),), edges)
    operations = compile_instance(instance_of(one_server(2), TaskGraphJob("j", shape, 1)))
    start = Start(operations)
    small, kept = contracted(start.jobs.flat)
    lasts = start.jobs.flat.duration_us[2]
    assert kept == [0, 1]
    assert small.arcs == [Arc(0, 1, 2 + lasts, 0)]
    assert with_delays(start.jobs.flat, kept, [0, 2 + lasts]) == [0, 2 + lasts, 2]


@needs_fast
@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_python_and_compiled_functions_find_the_same(horizon: Horizon, objective: Objective) -> None:
    instance = instance_of(one_server(3, 6), TaskGraphJob("pipe", pipeline(3, 4, 1, "slot"), 1), horizon=horizon)
    instances = [instance, *(random_task_graph_instance(seed, horizon, objective) for seed in range(6))]
    starts = [start for start in map(starts_of, instances) if start is not None]
    fast = [start.anneal(300) for start in starts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jigsaw_opt.solvers.engines.compiled.compiled", lambda function: None)
        found = [start.anneal(300) for start in starts]
    assert compiled.compiled(anneal_activities) is not None
    assert fast == found


@pytest.mark.parametrize(("horizon", "objective"), HORIZONS)
def test_many_parts_find_what_one_does(horizon: Horizon, objective: Objective) -> None:
    shop = replace(instance_of(one_server(6), ft06(), horizon=horizon), objective=objective)
    instances = [shop, *(random_task_graph_instance(seed, horizon, objective) for seed in range(4))]
    starts = [start for start in map(starts_of, instances) if start is not None]
    whole = [start.anneal(200, hot=0.1) for start in starts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jigsaw_opt.solvers.activities.orders.annealing._VISITS", 300)
        assert [start.anneal(200, hot=0.1) for start in starts] == whole
    assert len(starts) > 2


def test_weighted_ends_beyond_64_bits_are_summed_exactly() -> None:
    late, weight = 2**53 - 1, 2**18
    flat = FlatActivities([10, 20], [late, late], [(0,), (0,)], [], [[], []], [[], []], [0], [0, 1], [0, 0])
    found = OrderSearch(flat, [weight, weight], False).anneal([1, 0], [late + 20, late], 50, 0.0, 1, lambda _: False)
    assert found.value == weight * (2 * late + 10 + 30)
