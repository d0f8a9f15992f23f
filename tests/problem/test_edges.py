"""Activity networks, and what rarely happens: nothing joins servers, links are gone, plug-ins are none, jobs move."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.instances import load, names
from jigsaw_opt.problem import (
    Block,
    Cluster,
    Edge,
    Instance,
    Iteration,
    Job,
    JobPlan,
    Link,
    Model,
    Phase,
    PhaseGroup,
    Plan,
    Segment,
    Server,
    Slot,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
    compile_instance,
    depth,
)
from jigsaw_opt.problem.clock import Clock, halting, limited
from jigsaw_opt.problem.cluster import Channel, Routes
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import Precedence, compile_task_graph
from jigsaw_opt.problem.compiled.timetable import JobDecision, Timetable, assemble, lateness_us, objective_of
from jigsaw_opt.problem.costs import staircase
from jigsaw_opt.problem.depth import chosen_depth, depth_class
from jigsaw_opt.problem.network.route_policy import RoutePolicy
from jigsaw_opt.problem.power import PowerCap
from jigsaw_opt.problem.rules.schemas import depth_schema
from jigsaw_opt.problem.task_graph import MemoryInterval, TaskGraph
from jigsaw_opt.problem.workload import TraceJob, job_problems
from jigsaw_opt.solvers.activities.flat import flatten
from jigsaw_opt.solvers.activities.repeating import earliest
from jigsaw_opt.solvers.greedy.heuristic import timetables
from tests.refusals import misuse, refuses

SMALL = [name for name in names() if name.startswith(("tiny/", "server/"))]


def network_of(operations: Operations, plan: Timetable) -> tuple[ActivityNetwork, list[int]]:
    """All jobs of a plan, and the start of every activity there."""
    number = {
        operations.cluster.gpu_name(s, k): (s, k)
        for s, each in enumerate(operations.cluster.servers)
        for k in range(each.gpus)
    }
    network, starts = ActivityNetwork(operations.routes, operations.horizon), []
    for graph, job in zip(operations.jobs, plan.jobs, strict=True):
        levels = [[block.level for block in iteration.blocks] for iteration in job.iterations]
        network.add_data_parallel(graph, [number[name] for name in job.gpus], levels)
        for iteration in job.iterations:
            starts += [block.start_us for block in (*iteration.blocks, *iteration.transfers)]
    return network, starts


@pytest.mark.parametrize("name", SMALL)
def test_list_schedules_of_bundled_instances_are_as_early_as_their_order_lets_them(name: str) -> None:
    operations = compile_instance(load(name))
    # The first trials hold no job back.
    plan = next(timetables(operations), None)
    if plan is None:
        pytest.skip("the first order of greedy finds no placement")
    network, starts = network_of(operations, plan)
    ends = [block.end_us for job in plan.jobs for i in job.iterations for block in (*i.blocks, *i.transfers)]
    assert [s + each.duration_us for s, each in zip(starts, network.activities, strict=True)] == ends
    period = plan.period_us or 0
    for before, after, periods, offset in network.waits:
        length = network.activities[before].duration_us if offset is None else offset
        assert starts[after] + periods * period >= starts[before] + length
    if operations.horizon == "finite":
        order = sorted(range(len(starts)), key=lambda number: (starts[number], number))
        assert earliest(flatten(network), order) == starts


def pipe(barrier: str = "none", iterations: int = 1) -> TaskGraphJob:
    """Two stages, forward and backward, with the activations held on the first one."""
    blocks = (
        TaskGraphBlock("F0", ("a",), {"v": 10}),
        TaskGraphBlock("F1", ("b",), {"v": 10}),
        TaskGraphBlock("B1", ("b",), {"v": 20}),
        TaskGraphBlock("B0", ("a",), {"v": 20}),
    )
    transfers = (TaskGraphTransfer("act", 1, "a", "b"),)
    edges = (Edge("F0", "act"), Edge("act", "F1"), Edge("F1", "B1"), Edge("B1", "B0"), Edge("B0", "F0", 1))
    holds = (MemoryInterval("F0", "B0", 500),)
    return TaskGraphJob(
        "pipe", TaskGraph((Slot("a", 7), Slot("b")), blocks, transfers, edges, barrier, holds), iterations
    )  # type: ignore[arg-type]


def test_edges_reach_over_iterations_and_periods() -> None:
    graph = compile_task_graph(pipe(iterations=2))
    finite, cyclic = (set(graph.precedences(horizon)) for horizon in ("finite", "cyclic"))
    assert Precedence((0, 3), (1, 0), 0) in finite
    assert cyclic - finite == {Precedence((1, 3), (0, 0), 1)} | {Precedence((1, k), (0, k), 1) for k in range(5)}


def test_a_barrier_leaves_out_what_follows_from_edges() -> None:
    slot = set(compile_task_graph(pipe("slot", 2)).precedences("finite")) - set(
        compile_task_graph(pipe("none", 2)).precedences("finite")
    )
    assert slot == {Precedence((0, 2), (1, 1), 0), Precedence((0, 0), (1, 3), 0)}
    job = set(compile_task_graph(pipe("job", 2)).precedences("finite")) - set(
        compile_task_graph(pipe("none", 2)).precedences("finite")
    )
    assert job == set()


SERVERS = tuple(Server(f"s{k}", "v", 2, 1000, 10**6) for k in range(3))
MODEL = Model((Segment("one", {"v": 3}, {"v": 5}, 10, 1),))
SHAPE = TaskGraph(
    (Slot("a"), Slot("b"), Slot("c")),
    tuple(TaskGraphBlock(name, (slot,), {"v": 4}) for name, slot in zip("FGH", "abc", strict=True)),
    (TaskGraphTransfer("t", 100, source="a", target="b"), TaskGraphTransfer("r", 100, among=("a", "b", "c"))),
    (Edge("F", "t"), Edge("t", "G")),
)


def cluster(*ends: tuple[str, str], **more: Any) -> Cluster:
    """Return three servers and links between some."""
    links = tuple(Link(f"l{k}", pair, 10**6, 1) for k, pair in enumerate(ends))
    return Cluster(SERVERS, (), links, **more)


def instance(cluster: Cluster, *jobs: Job | TaskGraphJob, **more: Any) -> Instance:
    return Instance("i", cluster, {"m": MODEL}, jobs, **more)


def test_a_job_on_servers_that_nothing_joins_has_no_network_and_no_plan() -> None:
    pipe = TaskGraphJob("pipe", SHAPE, 1)
    operations = compile_instance(instance(cluster(("s0", "s1")), Job("a", "m", 2, 1), pipe))
    graph, other = operations.jobs[0], operations.task_graphs[0]
    apart = ((0, 0), (2, 0))
    with pytest.raises(ValueError, match=r"job a$"):
        ActivityNetwork(operations.routes).add_data_parallel(graph, apart, [[1, 1]])
    for gpus in ((*apart, (0, 1)), ((0, 0), (1, 0), (2, 0))):
        with pytest.raises(ValueError, match=r"job pipe$"):
            ActivityNetwork(operations.routes).add_task_graph(other, gpus)
    decision = JobDecision(apart, ((1, 1),), ((0, 0),), ((0,),))
    with pytest.raises(ValueError, match=r"job a$"):
        assemble(operations, [decision])


def test_transfers_of_a_shape_take_what_their_links_let_through() -> None:
    operations = compile_instance(instance(cluster(("s0", "s1"), ("s1", "s2")), TaskGraphJob("pipe", SHAPE, 1)))
    network = ActivityNetwork(operations.routes)
    network.add_task_graph(operations.task_graphs[0], ((0, 0), (2, 0), (1, 0)))
    sent, shared = network.activities[3:]
    # 100 bytes at one a microsecond over two links; among three, each sends 4/3 of them.
    assert (sent.duration_us, sent.links) == (100 + 1, (0, 1))
    assert (shared.duration_us, shared.links) == (-(-400 // 3) + 2 * (3 - 1), (0, 1))


def test_objectives_need_a_period_where_plans_are_cyclic() -> None:
    cyclic = compile_instance(
        instance(cluster(), Job("a", "m", 1, 1, pace_us=90), horizon="cyclic", objective="period")
    )
    with pytest.raises(ValueError, match="period"):
        objective_of(cyclic, ())
    assert objective_of(cyclic, (), 70) == 70
    assert (lateness_us(cyclic, (), 70), lateness_us(cyclic, (), 95)) == (0, 5)
    finite = compile_instance(instance(cluster(), Job("a", "m", 1, 1, deadline_us=50), Job("b", "m", 1, 1)))
    assert lateness_us(finite, (53, 999)) == 3
    assert lateness_us(finite, (49, 999)) == 0


def test_an_instance_counts_workers_slots_and_blocks() -> None:
    both = instance(cluster(("s0", "s1"), ("s1", "s2")), Job("a", "m", 2, 3), TaskGraphJob("pipe", SHAPE, 4))
    assert (both.workers, both.blocks) == (2 + 3, 2 * 3 + 3 * 4)
    parts = compile_instance(both).kinds
    assert [(len(part.jobs), len(part.task_graphs)) for part in parts] == [(1, 0), (0, 1)]
    alone = compile_instance(instance(cluster(), Job("a", "m", 2, 3)))
    assert alone.kinds == (alone,)


def test_policies_name_no_link_that_is_gone() -> None:
    policies = {"p": RoutePolicy(avoid_links=("l0", "l2")), "q": RoutePolicy(max_links=2)}
    whole = cluster(("s0", "s1"), ("s1", "s2"), ("s0", "s2"), route_policies=policies)
    left = whole.without(links=["l0"])
    assert [link.name for link in left.links] == ["l1", "l2"]
    assert left.route_policies == {"p": RoutePolicy(avoid_links=("l2",)), "q": RoutePolicy(max_links=2)}
    assert [link.name for link in whole.without(servers=["s1"]).links] == ["l2"]


def test_a_policy_can_keep_servers_of_one_part_apart() -> None:
    chain = cluster(("s0", "s1"), ("s1", "s2"), route_policies={"near": RoutePolicy(max_links=1)})
    routes = Routes(chain)
    assert list(routes.apart(range(3))) == []
    near = routes.under("near")
    assert list(near.apart(range(3))) == [(0, 2)]
    assert near.channel(Counter([0, 1, 2])) is None
    assert near.channel(Counter([0, 1])) == Channel((0,), 10**6, 1)


def test_power_caps_are_refused_by_whoever_keeps_none() -> None:
    with misuse("unsupported power_caps"):
        cluster(power_caps=(PowerCap("roof", ("s0",), 300),)).require_no_capacities("nobody here keeps them")
    cluster().require_no_capacities("nobody here keeps them")


@pytest.mark.parametrize(
    ("cuts", "found"),
    [(["x"], ["wrong-count Model.executor.cuts"]), (["x", "x"], ["duplicate-name Model.executor.cuts[1]"])],
)
def test_a_training_is_divided_once_between_each_two_levels(cuts: list[str], found: list[str]) -> None:
    segments = tuple(replace(MODEL.segments[0], name=name) for name in "abc")
    with refuses(*found):
        Model(segments, executor={"train": "code:net", "arguments": {}, "cuts": cuts})


def test_the_balance_of_a_rotation_is_what_turning_steps_leave() -> None:
    for workers, deepest, iterations in ((3, 4, 5), (4, 2, 7), (2, 5, 4)):
        steps = staircase(deepest, workers)
        totals = [sum(steps[(worker + turn) % workers] for turn in range(iterations)) for worker in range(workers)]
        rule = chosen_depth("rotation", workers, deepest, iterations)
        assert rule == depth.FreeDepth(balance=max(totals) - min(totals))
    assert [chosen_depth(name, 2, 2, 1).rule for name in ("full", "staircase", "free")] == ["full", "staircase", "free"]


def test_an_entry_point_that_is_no_depth_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "load", lambda *_: dict)
    with misuse("mismatch depth"):
        depth_class("odd")
    with misuse("unknown-name rule"):
        depth_schema("staircase")


def test_nothing_halts_without_a_clock() -> None:
    flag = [0]
    with halting(flag):
        assert flag == [0]
    with limited(Clock(0.0, threading.Event())), halting(flag):
        while not flag[0]:
            pass
    assert flag == [1]


def phase(start: int, period: int | None, repeats: int | None, gpu: str) -> Phase:
    block = Block(1, 0, 8)
    return Phase(start, period, repeats, (JobPlan("a", (gpu,), (Iteration((block,), ()),)),))


def test_jobs_that_move_are_named() -> None:
    def plan(*phases: Phase) -> Plan:
        return Plan("i", "", "feasible", 20, 0, (PhaseGroup(phases),))

    stays = plan(phase(0, 10, 1, "s0/0"), phase(10, 10, 1, "s0/0"))
    moves = plan(phase(0, 10, 1, "s0/0"), phase(10, 10, 1, "s0/1"))
    assert (stays.moved, moves.moved) == ((), ("a",))
    stays.require_no_moves("nothing moves here")
    with refuses("unsupported $.groups"):
        moves.require_no_moves("nothing moves here")
    with misuse("missing-field"):
        plan(phase(0, 10, 1, "s0/0"), phase(10, 10, None, "s0/0"))


def test_a_phase_alone_is_a_cyclic_plan() -> None:
    whole = instance(cluster(), Job("a", "m", 1, 2))
    counted = Plan("i", "", "feasible", 20, 0, (PhaseGroup((phase(0, 10, 2, "s0/0"),)),))
    part, alone = counted.alone(whole, counted.groups[0].phases[0])
    assert (part.horizon, part.objective, part.jobs[0].iterations) == ("cyclic", "period", 1)
    assert (alone.period_us, alone.objective, alone.is_phased) == (10, 10, False)
    assert alone.alone(part, alone.groups[0].phases[0]) == (part, alone)


def test_what_is_wrong_with_a_job_of_a_trace() -> None:
    good = TraceJob("a", 0, "m", 2, 5, gpu_types=["v", "w"])  # type: ignore[arg-type]
    assert good.gpu_types == ("v", "w") and not list(job_problems(good))
    wrong = replace(good, name="", user=7, foreground=1, min_gpus=3, after=("a|b",), gpu_types=())  # type: ignore[arg-type]
    assert [f"{problem.code} {problem.path}" for problem in job_problems(wrong)] == [
        "out-of-range name",
        "wrong-type user",
        "empty gpu_types",
        "wrong-type after",
        "wrong-type foreground",
        "contradiction gpus",
    ]


def test_iterations_of_a_plan_are_counted_over_its_repetitions() -> None:
    job = JobPlan("a", ("s0/0",), (Iteration((Block(2, 1, 3),), ()), Iteration((Block(1, 3, 5),), ())))
    part = job.between(1, 4, 10)
    assert [done.start_us for done in part.operations] == [3, 11, 13]
    assert (part.start_us, part.end_us, part.levels) == (3, 15, ((1,), (2,), (1,)))
