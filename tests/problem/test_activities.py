"""The activity network: both kinds of job, and times that equal those of today's plans."""

from __future__ import annotations

import pytest

from jigsaw_opt.instances import load, names
from jigsaw_opt.problem import compile_instance
from jigsaw_opt.problem.compiled.activities import ActivityNetwork
from jigsaw_opt.problem.compiled.operations import Operations
from jigsaw_opt.problem.compiled.task_graph import NumberedHold, Precedence, compile_task_graph
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.task_graph import (
    Edge,
    MemoryInterval,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    TaskGraphTransfer,
)
from jigsaw_opt.solvers.greedy.heuristic import timetables

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
        assert network.earliest(order) == starts


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


def test_a_shape_is_cut_into_numbers() -> None:
    graph = compile_task_graph(pipe())
    assert (graph.blocks, graph.size) == (4, 5)
    assert graph.takes_part == ((0,), (1,), (1,), (0,), (0, 1))
    assert graph.blocks_of == ((0, 3), (1, 2))
    assert graph.holds == (NumberedHold(0, 3, 0, 500),)
    assert set(graph.edges) == {(0, 4, 0), (4, 1, 0), (1, 2, 0), (2, 3, 0), (3, 0, 1)} | {(k, k, 1) for k in range(5)}


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
