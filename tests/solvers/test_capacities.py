"""Power caps and licences: optima against brute force, list schedules, phases, and methods that refuse them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from jigsaw_opt import Fix, LiveScheduler, Options, Session, Status, solve
from jigsaw_opt.checking import check
from jigsaw_opt.errors import UsageError
from jigsaw_opt.executor.schedules.presence import seams
from jigsaw_opt.instances import load
from jigsaw_opt.planning.fill import fill
from jigsaw_opt.planning.shifts.comparison import compare
from jigsaw_opt.problem import Cluster, Instance, Job, Model, Segment, Server
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.solvers.activities.capacities import capacity_arcs, keeping_capacities
from jigsaw_opt.solvers.activities.flat import Arc, FlatActivities
from jigsaw_opt.solvers.explanation.breakdown import explain_jobs
from jigsaw_opt.solvers.explanation.changes import changes
from jigsaw_opt.solvers.registry import find, names, refusal
from jigsaw_opt.solvers.resolve.kept_order import KeptOrder
from jigsaw_opt.solvers.result import StoppedBy
from jigsaw_opt.solvers.solve_state import SolveState
from tests.oracle import optimum
from tests.random_instances import (
    GOALS,
    random_instance,
    tight_instance,
    with_guarantees,
    with_licences,
    with_power_caps,
    with_route_policies,
)
from tests.random_task_graphs import random_mixed_instance, random_task_graph_instance
from tests.refusals import misuse
from tests.task_graph_oracle import task_graph_optimum

_ONE = Options(threads=1)


@pytest.fixture
def capped(pair: Instance) -> Instance:
    return replace(pair, cluster=replace(pair.cluster, power_caps=(PowerCap("room", ("s0",), 600),)))


def drawn_under_caps(seed: int, horizon: Horizon, objective: Objective, operations: int = 6) -> Instance:
    """A random instance under caps, most of which bind."""
    return with_power_caps(random_instance(seed, horizon, objective, operations), Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_the_exact_model_agrees_with_brute_force(horizon: Horizon, objective: Objective) -> None:
    pytest.importorskip("ortools")
    bound = none = 0
    for seed in (0, 1, 2, 5, 6, 11, 12):
        instance = drawn_under_caps(seed, horizon, objective, 4 if horizon == "cyclic" else 6)
        best, free = optimum(instance), optimum(replace(instance, cluster=replace(instance.cluster, power_caps=None)))
        for method in ("cpsat", "auto"):
            found = solve(instance, method, _ONE)
            assert found.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL), f"{seed} by {method}"
            assert found.objective == best, f"{seed} by {method}"
        listed = solve(instance, "greedy", _ONE)
        assert listed.objective is None or (best is not None and listed.objective >= best >= listed.bound)
        bound += best is not None and best != free
        none += best is None and free is not None
    assert bound >= 1 and none >= 1, (bound, none)


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_many_jobs_keep_a_cap_of_a_room(horizon: Horizon) -> None:
    """Sixteen GPUs of 300 W under a cap that lets five of them run: the work of all blocks by five is a bound."""
    servers = tuple(Server(f"s{k}", "v", 4, 10**9, 10**9) for k in range(4))
    cap = PowerCap("room", tuple(server.name for server in servers), 1500)
    net = Model((Segment("x", {"v": 400}, {"v": 800}, 0, 0),), power_w={"v": 300})
    jobs, least = tuple(Job(f"j{k}", "net", 1, 2) for k in range(40)), 40 * 2 * 1200 // 5
    goal: Objective = "makespan" if horizon == "finite" else "period"
    instance = Instance("room", Cluster(servers, power_caps=(cap,)), {"net": net}, jobs, horizon, goal)
    found = solve(instance, "greedy", _ONE)
    assert found.plan is not None and check(instance, found.plan) == ()
    assert found.objective is not None and least <= found.objective <= 1.1 * least
    blocks = [block for job in found.plan.jobs for iteration in job.iterations for block in iteration.blocks]
    moments = [sum(each.start_us <= block.start_us < each.end_us for each in blocks) for block in blocks]
    assert max(moments) == 5


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_every_method_keeps_caps_guarantees_and_policies(horizon: Horizon, objective: Objective) -> None:
    """`solve` checks every plan; exact methods agree, and from a plan nothing gets worse."""
    pytest.importorskip("ortools")
    for seed in range(6):
        random = Random(f"{seed}/{horizon}/{objective}")
        makers = random_instance, random_mixed_instance, random_task_graph_instance
        instance = with_power_caps(makers[seed % 3](seed, horizon, objective), random)
        instance = with_route_policies(with_guarantees(instance, random, 30), random)
        best = solve(instance, "cpsat", _ONE)
        for method in ("greedy", "search", "portfolio", "phased"):
            if refusal(find(method), instance) is not None:
                continue
            found = solve(instance, method, replace(_ONE, work_limit=0.05))
            if found.plan is not None and method != "phased":
                assert best.objective is not None and found.objective is not None
                assert found.bound <= best.objective <= found.objective
                again = solve(instance, method, replace(_ONE, work_limit=0.05), start=found.plan)
                assert again.objective is not None and again.objective <= found.objective


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_the_waits_of_a_plan_keep_its_capacities(horizon: Horizon, objective: Objective) -> None:
    for seed in range(12):
        instance = drawn_under_caps(seed, horizon, objective, 4 if horizon == "cyclic" else 6)
        plan = solve(instance, "greedy", _ONE).plan
        if plan is None:
            continue
        order = KeptOrder.of(instance, plan)
        timing = order.timed((), (), order.operations.routes)
        assert timing is not None
        solve_state = SolveState("test", order.operations, _ONE, lambda event: None)
        solve_state.offer(order.timetable(timing, (), order.operations.routes)[1])
        result = solve_state.result(StoppedBy.COMPLETED)
        assert result.plan is not None and not check(instance, result.plan)
        assert result.plan.objective <= plan.objective


def test_a_flow_on_a_circle_reaches_over_periods() -> None:
    """Three activities of 4 us in a period of 6 us under a capacity of two: each waits for the last but one."""
    flat = FlatActivities(
        [4] * 3, [0] * 3, [(0,), (1,), (2,)], [], [[]] * 3, [[]] * 3, [0], [0] * 3, [0] * 3, [[(0, 1)]] * 3, [2]
    )
    assert capacity_arcs(flat, [0, 2, 4], 6) == [Arc(1, 0, 4, 1), Arc(2, 1, 4, 1), Arc(0, 2, 4, 0)]
    assert capacity_arcs(flat, [0, 2, 10], 6) == [Arc(1, 0, 4, 1), Arc(2, 1, 4, 2), Arc(0, 2, 4, -1)]
    assert capacity_arcs(flat, [0, 0, 4]) == [Arc(0, 2, 4, 0)]
    assert keeping_capacities(flat._replace(limits=[3]), [0, 2, 4], 6).arcs == []


@pytest.mark.parametrize("method", ["auto", "cpsat", "greedy"])
def test_a_plan_under_caps_is_started_from_and_carried_over(capped: Instance, method: str) -> None:
    pytest.importorskip("ortools")
    plan = solve(capped, "greedy").plan
    assert plan is not None
    for fix in (None, Fix()):
        result = solve(capped, method, _ONE, start=plan, fix=fix)
        assert result.objective is not None and result.objective <= plan.objective
    longer = replace(capped, jobs=tuple(replace(job, iterations=job.iterations + 1) for job in capped.jobs[:1]))
    result = solve(longer, method, _ONE, start=plan, fix=Fix())
    assert result.plan is not None and check(longer, result.plan) == ()
    with misuse("unsupported fix", naming=[capped.name, "power cap"]):
        solve(capped, "auto", start=plan, fix=Fix(before_us=1))


@pytest.mark.parametrize("method", [name for name in [*names(), "phased"] if name != "auto"])
def test_a_refusal_names_all_solvers_that_take_the_instance_and_no_other(capped: Instance, method: str) -> None:
    pytest.importorskip("ortools")
    pytest.importorskip("pulp")
    cyclic = replace(capped, horizon="cyclic", objective="period")
    task_graphs = load("shop/job-6x4")
    both = replace(task_graphs, cluster=replace(task_graphs.cluster, power_caps=(PowerCap("room", ("shop",), 600),)))
    for instance in (capped, cyclic, task_graphs, both):
        able = {name for name in [*names(), "phased"] if refusal(find(name), instance) is None}
        if method in able:
            continue
        with pytest.raises(UsageError) as raised:
            solve(instance, method, time_limit=1)
        told = str(raised.value).rpartition("; ")[2]
        assert told == f"{', '.join(sorted(able))} {'take' if len(able) > 1 else 'takes'} it"


_METHODS = ("cpsat", "auto", "ilp", "greedy", "search", "portfolio", "phased")
_EXACT = ("cpsat", "auto", "ilp")


def named(counts: dict[str, int], names: list[tuple[str, ...]], servers: int = 3) -> Instance:
    """Jobs of one block of 10 us, which name licences, and as many GPUs."""
    net = Model((Segment("x", {"v": 10}, {"v": 0}, 1, 0),))
    jobs = tuple(Job(f"j{k}", "net", 1, 1, licences=own) for k, own in enumerate(names))
    cluster = Cluster((Server("s", "v", servers, 10**6, 1),), licences=counts)
    return Instance("named", cluster, {"net": net}, jobs)


def drawn(seed: int, horizon: Horizon, objective: Objective) -> Instance:
    """A random instance of any kind of job, mostly with too few licences, and in some cases with tight memory."""
    random = Random(f"{seed}/{horizon}/{objective}")
    makers = (random_instance, random_mixed_instance, random_task_graph_instance)
    if seed % 4 == 3 and horizon == "finite":
        instance = tight_instance(seed, objective)
    elif seed % 2:
        instance = random_instance(seed, horizon, objective, 4 if horizon == "cyclic" else 6)
    else:
        instance = makers[seed // 2 % 3](seed, horizon, objective)
    if seed % 5 == 0:
        instance = with_guarantees(instance, random, 30)
    tries = [with_licences(instance, random) for _ in range(10)]
    scarce = (one for one in tries if one.scarce_capacities and 0 not in (one.cluster.licences or {}).values())
    return next(scarce, tries[0]) if horizon == "finite" else tries[0]


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_every_method_agrees_with_brute_force(horizon: Horizon, objective: Objective) -> None:
    pytest.importorskip("ortools")
    pytest.importorskip("pulp")
    bound = none = 0
    for seed in range(16):
        instance = drawn(seed, horizon, objective)
        brute = task_graph_optimum if instance.task_graph_jobs else optimum
        best, free = (
            brute(instance),
            brute(replace(instance, cluster=replace(instance.cluster, licences={"x": 9, "y": 9}))),
        )
        for method in _METHODS:
            if refusal(find(method), instance) is not None:
                continue
            found = solve(
                instance, method, replace(_ONE, work_limit=0.05 if method in ("search", "portfolio") else None)
            )
            told = f"{seed} by {method}: {found.status} {found.objective}, not {best}"
            if method in _EXACT:
                assert found.status is (Status.INFEASIBLE if best is None else Status.OPTIMAL), told
                assert found.objective == best, told
            assert found.status is not Status.INFEASIBLE or best is None, told
            assert found.objective is None or (best is not None and found.bound <= best <= found.objective), told
            # With more licences than that some method had found a plan; none may fail here.
            assert found.objective is not None or best is None or instance.guaranteed_jobs, told
        bound += best is not None and best != free
        none += best is None and free is not None
    assert bound + none >= 3, (bound, none)


@pytest.mark.parametrize("method", [*_METHODS])
def test_jobs_wait_for_a_licence_and_ample_ones_bind_nothing(method: str) -> None:
    pytest.importorskip("ortools")
    pytest.importorskip("pulp")
    options = replace(_ONE, work_limit=0.05 if method in ("search", "portfolio") else None)
    for counts, best in (({"x": 1, "y": 1}, 30), ({"x": 2, "y": 1}, 20), ({"x": 3, "y": 1}, 10)):
        found = solve(named(counts, [("x",), ("x", "y"), ("x",)]), method, options)
        assert found.plan is not None and found.objective == best
    lacking = named({"x": 1, "y": 0}, [("x",), ("x", "y"), ("x",)])
    told = solve(lacking, method, options)
    assert told.status is Status.INFEASIBLE
    assert [(one.kind, one.jobs) for one in told.conflicts] == [("held", ("j1",))]
    if method not in ("ilp", "phased"):
        cyclic = replace(named({"x": 2, "y": 1}, [("x",), ("x",), ("x",)]), horizon="cyclic", objective="period")
        told = solve(cyclic, method, options)
        assert told.status is Status.INFEASIBLE
        assert [(one.kind, one.jobs) for one in told.conflicts] == [("held", ("j0", "j1", "j2"))]


@pytest.mark.parametrize(
    ("draw", "seed"),
    [*((drawn, seed) for seed in range(1, 16, 2)), *((drawn_under_caps, seed) for seed in range(0, 24, 4))],
)
def test_phased_plans_keep_capacities(draw: Callable[[int, Horizon, Objective], Instance], seed: int) -> None:
    """Jobs of one licence or cap are in one group, and no phase has more of them, or draws more, than is allowed."""
    instance = draw(seed, "finite", "makespan" if seed % 4 == 3 else "weighted_completion")
    jobs = (replace(job, iterations=500 * job.iterations, deadline_us=None) for job in instance.jobs)
    instance = replace(instance, jobs=tuple(jobs))
    result = solve(instance, "phased", _ONE)
    assert result.plan is not None or result.status is Status.INFEASIBLE
    if result.plan is not None:
        assert result.plan.is_phased and check(instance, result.plan) == ()
        again = solve(instance, "phased", _ONE, start=result.plan)
        assert again.objective is not None and again.objective <= result.plan.objective


@pytest.mark.parametrize("method", ["auto", "cpsat", "greedy"])
def test_a_plan_with_licences_is_started_from_and_carried_over(method: str) -> None:
    pytest.importorskip("ortools")
    instance = named({"x": 1, "y": 2}, [("x",), ("x", "y"), ("y",)])
    plan = solve(instance, "greedy").plan
    assert plan is not None and plan.objective == 20
    for fix in (None, Fix()):
        assert solve(instance, method, _ONE, start=plan, fix=fix).objective == 20
    fewer = replace(instance, cluster=replace(instance.cluster, licences={"x": 1, "y": 1}))
    result = solve(fewer, method, _ONE, start=plan, fix=Fix())
    assert result.objective == 20 and result.plan is not None and check(fewer, result.plan) == ()
    with misuse("unsupported fix", naming=[instance.name, "licence 'x'"]):
        solve(instance, "auto", start=plan, fix=Fix(before_us=1))


def test_a_run_builds_no_more_workers_than_there_are_licences_for() -> None:
    instance = named({"x": 1, "y": 2}, [("x",), ("x", "y"), ("y",)])
    plan = solve(instance, "greedy", _ONE).plan
    assert plan is not None
    first, second = seams(instance, plan)
    assert (first.start_us, second.start_us) == (0, 10)
    assert len(first.jobs & {0, 1}) == len(second.jobs & {0, 1}) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda each: fill(each, [each.jobs[0].name], _ONE),
        lambda each: compare(each, _ONE),
        lambda each: LiveScheduler(each.cluster, models=each.models),
    ],
)
def test_fills_shifts_and_live_schedulers_refuse_capacities(
    capped: Instance, call: Callable[[Instance], object]
) -> None:
    for kind, instance in (("licences", named({"x": 1}, [("x",), ()])), ("power_caps", capped)):
        with misuse(f"unsupported {kind}"):
            call(replace(instance, horizon="cyclic", objective="period"))


def test_time_does_not_go_on_where_licences_are_scarce() -> None:
    session = Session(named({"x": 1}, [("x",), ("x",)]))
    session.solve(_ONE)
    with pytest.raises(UsageError, match="licence 'x'"):
        session.advance(5)


def test_a_plan_timed_anew_keeps_its_licences_and_says_who_waits_for_one() -> None:
    """The first job exchanges while the second one waits for its licence, on a GPU that is idle."""
    net = Model((Segment("x", {"v": 10}, {"v": 0}, 100, 0),), state_factor=1)
    cluster = Cluster((Server("s", "v", 2, 1000, 10**6),), licences={"tool": 1})
    jobs = tuple(Job(name, "net", workers, 1, licences=("tool",)) for name, workers in (("wide", 2), ("late", 1)))
    instance = Instance("wait", cluster, {"net": net}, jobs, objective="weighted_completion")
    instance = replace(instance, jobs=(replace(jobs[0], weight=100), jobs[1]))
    plan = solve(instance, "greedy", _ONE).plan
    assert plan is not None and plan.objective == 100 * 110 + 120
    order = KeptOrder.of(instance, plan)
    kept, alone = (order.timed(stopped, (), order.operations.routes) for stopped in ((), (0,)))
    assert kept is not None and alone is not None
    assert (kept.starts[-1], alone.starts[-1]) == (110, 0)
    then = {change.change: change.end_us for change in changes(instance, plan, "late")}
    # On GPUs of its own it waits for the licence all the same.
    assert (then["GPUs of its own"], then["alone in the cluster"]) == (120, 10)
    (late,) = explain_jobs(instance, plan, "late")
    steps = [(step.kind, step.start_us, step.end_us, step.on) for step in late.chain]
    assert steps == [("gpu", 0, 10, "s/0"), ("held", 10, 110, "licence 'tool'"), ("compute", 110, 120, "")]
