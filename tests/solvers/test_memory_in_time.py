"""Schedules in which jobs follow one another for memory (specification: memory)."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import inf
from random import Random

import pytest

from jigsaw_opt import Options, solve
from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Edge,
    Execution,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    MemoryInterval,
    Model,
    Segment,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphIteration,
    TaskGraphJob,
    TaskGraphJobPlan,
    Transfer,
    compile_instance,
)
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble, objective_of
from jigsaw_opt.problem.instance import Objective
from jigsaw_opt.problem.plan import Plan
from jigsaw_opt.solvers.activities.flat import flatten, network_of
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs, timetables_in_time
from jigsaw_opt.solvers.activities.orders.search_in_time import SearchInTime
from jigsaw_opt.solvers.activities.placing import fit_at_once, placements
from jigsaw_opt.solvers.activities.presence import flattened, job_orders, most_present
from jigsaw_opt.solvers.activities.serial_placing import SerialPlacing
from jigsaw_opt.solvers.explanation.breakdown import explain_jobs
from jigsaw_opt.solvers.explanation.changes import changes
from jigsaw_opt.solvers.greedy.heuristic import greedy_timetable
from jigsaw_opt.solvers.resolve import Fix
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder
from jigsaw_opt.solvers.search.driver import Driver
from jigsaw_opt.solvers.solve_state import SolveState
from jigsaw_opt.views.memory import MemoryStep, MemoryUse, memory_use
from tests.random_instances import random_instance, tight_instance
from tests.refusals import refused

SEEDS = range(60)
GOALS: tuple[Objective, ...] = ("makespan", "weighted_completion")


def plan_of(operations: Operations, timetable: Timetable) -> Plan:
    """The plan of a timetable."""
    instance, value = operations.instance, objective_of(operations, timetable.jobs, None, timetable.task_graph_jobs)
    found = {plan.name: plan for plan in timetable.plans}
    jobs = tuple(found[job.name] for job in instance.jobs)
    return Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, None, jobs)


def one_segment(us: dict[str, int]) -> Model:
    return Model(segments=(Segment("s", us, dict.fromkeys(us, 0), 1, 0),))


def one_job_at_a_time(servers: dict[str, str], us: dict[str, dict[str, int]], jobs: tuple[Job, ...]) -> Instance:
    """Servers of one GPU, each of which holds one job."""
    own = tuple(Server(name, gpu_type, 1, 4, 1) for name, gpu_type in servers.items())
    models = {name: one_segment(times) for name, times in us.items()}
    return Instance("small", Cluster(servers=own, switches=(), links=()), models, jobs)


def test_jobs_that_must_follow_one_another_have_a_plan() -> None:
    jobs = (
        Job("a", "3", 1, 1, release_us=1, deadline_us=4),
        Job("b", "5", 1, 1, release_us=9, deadline_us=20),
        Job("c", "6", 1, 1, deadline_us=10),
    )
    instance = one_job_at_a_time({"s": "v"}, {us: {"v": int(us)} for us in "356"}, jobs)
    operations = compile_instance(instance)
    timetable = greedy_timetable(operations)
    assert timetable is not None
    assert [plan.iterations[0].blocks[0].start_us for plan in timetable.jobs] == [1, 10, 4]


def test_two_jobs_use_the_fast_gpu_one_after_the_other() -> None:
    jobs = (Job("a", "m", 1, 1), Job("b", "m", 1, 1))
    instance = one_job_at_a_time({"fast": "f", "slow": "s"}, {"m": {"f": 2, "s": 100}}, jobs)
    operations = compile_instance(instance)
    timetable = greedy_timetable(operations)
    assert timetable is not None
    assert objective_of(operations, timetable.jobs, None) == 4
    assert not fit_at_once(operations, timetable)


@pytest.mark.parametrize("seed", SEEDS)
def test_list_schedules_keep_memory(seed: int) -> None:
    operations = compile_instance(tight_instance(seed, GOALS[seed % 2]))
    for placement in [own for own, _ in zip(placements(operations, seed, in_time=True), range(2), strict=False)]:
        jobs = PlacedJobs(operations, placement)
        for rule in jobs.ranks.rules[::4]:
            _, timetable = jobs.schedule(rule, inf)
            assert timetable is not None
            assert [v for v in check(operations.instance, plan_of(operations, timetable)) if v.rule != "deadline"] == []


def test_annealed_orders_keep_memory() -> None:
    better = 0
    for seed in SEEDS:
        operations = compile_instance(tight_instance(seed, GOALS[seed % 2]))
        state = SolveState("search", operations, Options(seed=seed), lambda event: None)
        search, first = SearchInTime(state, operations), None
        for _ in range(6):
            if not search.exhausted:
                search.step(0.002, inf)
                first = first or state.incumbent
        if state.incumbent is not None and first is not None:
            assert check(operations.instance, plan_of(operations, state.incumbent[1])) == ()
            better += state.incumbent[0] < first[0]
    assert better > 5


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_placed_one_after_the_other_keep_memory(seed: int) -> None:
    operations = compile_instance(tight_instance(seed, GOALS[seed % 2]))
    serial = SerialPlacing(operations)
    for schedule in islice(serial.first_schedules(), 2):
        changed = serial.neighbour(schedule, Random(seed))
        for own in (schedule, *([changed] if changed else [])):
            placement = own.placement(operations)
            assert placement is not None
            jobs = PlacedJobs(operations, placement)
            timetable = jobs.timetable(jobs.starts_in_order(own.starts, own.order))
            assert [v for v in check(operations.instance, plan_of(operations, timetable)) if v.rule != "deadline"] == []


def test_a_job_goes_where_it_ends_first_beside_those_before_it() -> None:
    # The fast GPU is free at 6, so that the last of four jobs ends there at 8 and would end at 7 on the slow one.
    jobs = tuple(Job(name, "m", 1, 1) for name in "abcd")
    operations = compile_instance(one_job_at_a_time({"fast": "f", "slow": "s"}, {"m": {"f": 2, "s": 7}}, jobs))
    schedule = SerialPlacing(operations).schedule([2, 1, 0, 3])
    assert schedule is not None
    assert [job.gpus for job in schedule.jobs] == [((0, 0),), ((0, 0),), ((0, 0),), ((1, 0),)]
    assert [(job.begin, job.end) for job in schedule.jobs] == [(4, 6), (2, 4), (0, 2), (0, 7)]
    assert schedule.value == (7, 19)


def test_a_job_does_not_begin_before_that_makes_it_end_sooner() -> None:
    own = one_job_at_a_time({"s": "v"}, {"m": {"v": 6}}, (Job("a", "m", 1, 1), Job("b", "m", 1, 1)))
    servers = tuple(replace(server, gpu_memory=8) for server in own.cluster.servers)
    operations = compile_instance(replace(own, cluster=replace(own.cluster, servers=servers)))
    schedule = SerialPlacing(operations).schedule([0, 1])
    assert schedule is not None
    # Each uses the GPU all the time, so that it is no use to begin before it is free.
    assert [(job.begin, job.end) for job in schedule.jobs] == [(0, 6), (6, 12)]


def test_of_jobs_that_begin_at_once_the_one_placed_first_has_the_gpu_first() -> None:
    # The second job takes what the first one leaves of the GPU that both use, and gets it later.
    operations = compile_instance(tight_instance(7, "weighted_completion"))
    schedule = SerialPlacing(operations).schedule([1, 0])
    placement = schedule and schedule.placement(operations)
    assert schedule is not None
    assert placement is not None
    assert {job.begin for job in schedule.jobs} == {0}
    jobs = PlacedJobs(operations, placement)
    starts = jobs.starts_in_order(schedule.starts, schedule.order)
    assert min(starts) == starts[jobs.flat.job.index(1)] == 0
    assert jobs.value(starts) == 43
    assert jobs.value(jobs.starts_in_order(schedule.starts, [0, 1])) > 43


def test_little_work_suffices_to_let_jobs_follow_one_another() -> None:
    jobs = tuple(Job(f"j{k}", "m", 1, 1) for k in range(40))
    own = one_job_at_a_time({"fast": "f", "slow": "s"}, {"m": {"f": 2, "s": 100}}, jobs)
    fast, slow = own.cluster.servers
    own = replace(own, cluster=replace(own.cluster, servers=(fast, replace(slow, gpu_memory=1000))))
    assert compile_instance(own).has_scarce_holdings
    assert solve(own, "search", work_limit=0.01, threads=1).objective == 80


def test_every_step_in_time_counts() -> None:
    operations = compile_instance(tight_instance(4))
    state = SolveState("search", operations, Options(work_limit=0.1, threads=1), lambda event: None)
    Driver(state).run()
    steps = [record.calls for name, record in state.moves.items() if name != "opening"]
    assert 0 < sum(steps) <= 50


def test_jobs_wait_for_those_that_they_do_not_fit_beside() -> None:
    jobs = tuple(Job(name, "m", 1, 1) for name in "abc")
    operations = compile_instance(one_job_at_a_time({"s": "v"}, {"m": {"v": 2}}, jobs))
    network = network_of(operations, [[(0, 0)]] * 3, [[(1,)]] * 3)
    flat, starts = flatten(network, in_time=True), [4, 0, 2]
    assert most_present(flat, starts) == [4]
    # That job 1 comes before job 0 follows from the others.
    assert job_orders(flat, starts) == [(1, 2), (2, 0)]
    assert job_orders(flat, starts, without={2}) == [(1, 0)]
    ordered = flattened(network, starts, True)
    assert ordered is not None
    assert {(arc.before, arc.after) for arc in ordered.arcs} == {(1, 2), (2, 0)}


def test_nothing_comes_where_memory_is_ample() -> None:
    instance = random_instance(3)
    servers = tuple(replace(server, gpu_memory=10**12) for server in instance.cluster.servers)
    operations = compile_instance(replace(instance, cluster=replace(instance.cluster, servers=servers)))
    assert not operations.has_scarce_holdings
    assert list(timetables_in_time(operations, 0, inf)) == []


def after_an_exchange() -> tuple[Instance, Plan]:
    """A job that waits for the memory of a GPU while another one exchanges, and the GPU is idle."""
    model = Model(segments=(Segment("s", {"v": 10}, {"v": 0}, 100, 0),), state_factor=1)
    jobs = (Job("wide", "m", 2, 1), Job("late", "m", 1, 1))
    cluster = Cluster(servers=(Server("s", "v", 2, 150, 10**6),), switches=(), links=())
    instance = Instance("exchange", cluster, {"m": model}, jobs)
    operations = compile_instance(instance)
    wide = JobDecision([(0, 0), (0, 1)], [(1, 1)], [(0, 0)], [(10,)])
    late = JobDecision([(0, 0)], [(1,)], [(110,)], [()])
    timetable = Timetable(assemble(operations, [wide, late]))
    return instance, plan_of(operations, timetable)


def test_waits_for_memory_are_a_cause_of_their_own() -> None:
    instance, plan = after_an_exchange()
    assert check(instance, plan) == ()
    (late,) = explain_jobs(instance, plan, "late")
    steps = [(step.kind, step.start_us, step.end_us, step.on) for step in late.chain]
    assert steps == [("gpu", 0, 10, "s/0"), ("memory", 10, 110, "s/0"), ("compute", 110, 120, "")]


def test_pictures_show_memory_that_comes_and_goes() -> None:
    instance, plan = after_an_exchange()
    use = memory_use(instance, plan)
    assert use == {
        "s/0": MemoryUse(150, (MemoryStep(0, 110, 100, ("wide",)), MemoryStep(110, 120, 100, ("late",)))),
        "s/1": MemoryUse(150, (MemoryStep(0, 110, 100, ("wide",)), MemoryStep(110, 120, 0, ()))),
    }


def test_a_plan_is_timed_anew_within_its_memory() -> None:
    instance, plan = after_an_exchange()
    order = KeptOrder.of(instance, plan)
    kept = order.timed((), (), order.operations.routes)
    alone = order.timed((0,), (), order.operations.routes)
    assert kept is not None
    assert alone is not None
    assert (kept.starts[-1], alone.starts[-1]) == (110, 0)


def test_the_change_to_gpus_of_its_own_waits_for_no_memory() -> None:
    instance, plan = after_an_exchange()
    then = {change.change: change.end_us for change in changes(instance, plan, "late")}
    assert (then["GPUs of its own"], then["alone in the cluster"]) == (10, 10)
    (late,) = explain_jobs(instance, plan, "late")
    assert [(wait.kind, wait.by, wait.us) for wait in late.waits] == [("memory", "wide", 100), ("gpu", "wide", 10)]


def test_what_has_started_must_fit_into_memory_together() -> None:
    instance, plan = after_an_exchange()
    servers = (replace(instance.cluster.servers[0], gpu_memory=250),)
    ample = replace(instance, cluster=replace(instance.cluster, servers=servers))
    beside = solve(ample, "cpsat", threads=1).plan
    assert beside is not None
    with pytest.raises(InvalidInputError) as raised:
        solve(instance, start=beside, fix=Fix(before_us=30), threads=1)
    assert refused(raised.value) == ["broken-rule $.before_us"]
    assert solve(instance, start=plan, fix=Fix(before_us=30), threads=1).objective == 120


def test_a_job_begins_with_what_its_memory_lets_it_go_on_from() -> None:
    # Begun with its second block, the job would need 7 of 5 bytes for its first one.
    blocks = (TaskGraphBlock("b0", ("t",), {"v": 3}), TaskGraphBlock("b2", ("t",), {"v": 6}))
    holds = (MemoryInterval("b2", "b0", 2), MemoryInterval("b0", "b0", 2))
    one = TaskGraphJob("one", TaskGraph((Slot("t", 3),), blocks, (), (), holds=holds), 1)
    two = TaskGraphJob("two", TaskGraph((Slot("t", 3),), (TaskGraphBlock("b", ("t",), {"v": 6}),), (), ()), 1)
    cluster = Cluster(servers=(Server("s", "v", 1, 5, 10**6),), switches=(), links=())
    instance = Instance("stuck", cluster, {}, (one, two), objective="weighted_completion")
    operations = compile_instance(instance)
    schedules = [timetable for timetable in timetables_in_time(operations, 0, inf) if timetable is not None]
    assert min(objective_of(operations, (), None, own.task_graph_jobs) for own in schedules) == 21
    assert all(check(instance, plan_of(operations, timetable)) == () for timetable in schedules)


def test_an_order_keeps_what_is_held_apart_from_the_jobs_that_came_later() -> None:
    """Job `b` comes once `a` has given its 40 bytes back; released earlier, its other worker may not begin either."""
    block = TaskGraphBlock("hold", ("s",), {"v": 10}), TaskGraphBlock("rest", ("s",), {"v": 10})
    shape = TaskGraph((Slot("s"),), block, edges=(Edge("hold", "rest"),), holds=(MemoryInterval("hold", "hold", 40),))
    servers = (Server("x", "v", 1, 60, 10**6), Server("y", "v", 1, 60, 10**6))
    model = Model((Segment("m", {"v": 5}, {"v": 5}, 32, 0),), state_factor=1)
    cluster = Cluster(servers, (), (Link("xy", ("x", "y"), 10**9),))
    jobs = (TaskGraphJob("a", shape, 1), Job("b", "m", 2, 1))
    instance = Instance("held", cluster, {"m": model}, jobs)
    a = TaskGraphJobPlan("a", ("x/0",), (TaskGraphIteration((Execution(0, 10), Execution(10, 20)), ()),))
    b = JobPlan("b", ("x/0", "y/0"), (Iteration((Block(1, 20, 30), Block(1, 10, 20)), (Transfer(1, 30, 31),)),))
    order = KeptOrder(compile_instance(instance), Timetable((b,), None, (a,)))
    timing = order.timed((), (), order.operations.routes)
    assert timing is not None
    timetable = order.timetable(timing, (), order.operations.routes)[1]
    assert timetable.jobs[0].iterations[0].blocks[1].start_us == 10
    assert check(instance, plan_of(order.operations, timetable)) == ()
