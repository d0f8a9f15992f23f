"""Bounds of task-graph jobs on memory over time and on barriers: known values, and never above the optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from threading import Event

import pytest

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem import Instance, MemoryInterval, Slot, TaskGraph, TaskGraphBlock, TaskGraphJob, compile_instance
from jigsaw_opt.problem.clock import Clock, limited
from jigsaw_opt.problem.instance import Horizon
from jigsaw_opt.problem.task_graph import Barrier
from jigsaw_opt.solvers.bounds import BoundBudget, BoundContext, lower_bound
from jigsaw_opt.solvers.bounds.activities.head_and_tail import best_head_and_tail
from jigsaw_opt.solvers.bounds.registry import names, relaxations
from tests.random_task_graphs import random_task_graph_instance
from tests.solvers.test_cpsat_task_graphs import instance_of, one_server, pipeline

pytest.importorskip("ortools")

from tests.task_graph_oracle import task_graph_optimum


def bound_of(instance: Instance, name: str) -> int:
    return lower_bound(compile_instance(instance), tuple(other for other in names() if other != name)).value


@pytest.mark.parametrize("memory", [1, 2, 3])
def test_held_time_of_a_pipeline(memory: int) -> None:
    # The first stage holds a byte for all of 4 * (1 + 2), and has up to three bytes.
    job = TaskGraphJob("pipe", pipeline(4, 1, 1), 1)
    assert bound_of(instance_of(one_server(4, memory), job, horizon="cyclic"), "held_time") == 12 // memory


def test_the_best_head_and_tail_are_those_of_all_pairs() -> None:
    random = Random(1)
    for number in range(300):
        most = (3, 10, 50)[number % 3]
        blocks = [tuple(random.randrange(most) for _ in range(3)) for _ in range(random.randrange(1, 12))]
        pairs = product({head for head, _, _ in blocks}, {tail for _, _, tail in blocks})
        both = [(a, b, [it for h, it, t in blocks if h >= a and t >= b]) for a, b in pairs]
        assert best_head_and_tail(blocks) == max((a + sum(own) + b, a, b) for a, b, own in both if own)


@pytest.mark.parametrize("seed", range(6))
def test_chains_to_some_ends_are_as_long_as_among_all(seed: int) -> None:
    for graph in compile_instance(random_task_graph_instance(seed)).task_graphs:
        lengths = [1 + operation % 3 for operation in range(graph.size)]
        for start, end in product(range(graph.size), repeat=2):
            every = graph.longest_from(start, lengths)
            assert graph.longest_from(start, lengths, [end]).get(end) == every.get(end)


def test_held_time_counts_what_divides_all_holds() -> None:
    # Two holds of 2 on 3 bytes: one after the other, though by bytes there were room for one and a half.
    blocks = tuple(TaskGraphBlock(name, ("s",), {"v": 5}) for name in "ab")
    shape = TaskGraph((Slot("s"),), blocks, (), (), "none", tuple(MemoryInterval(name, name, 2) for name in "ab"))
    instance = instance_of(one_server(1, 3), TaskGraphJob("j", shape, 3), horizon="cyclic")
    assert bound_of(instance, "held_time") == 3 * (5 + 5)


@pytest.mark.parametrize(("barrier", "span"), [("slot", 11), ("job", 12)])
def test_a_pipeline_with_few_batches_waits_for_the_last_stage(barrier: Barrier, span: int) -> None:
    # Three stages, two batches. Of the first stage: 7 before its first backward pass, and two of 2. Of the whole job:
    # 2 before the last stage, its work of 6, and 4 behind it.
    job = TaskGraphJob("pipe", pipeline(3, 2, barrier=barrier), 1)
    assert bound_of(instance_of(one_server(3), job, horizon="cyclic"), "partial_placements") == span
    twice = replace(job, iterations=2)
    assert bound_of(instance_of(one_server(3), twice, horizon="cyclic"), "partial_placements") == 2 * span


@pytest.mark.parametrize(
    ("barrier", "memory", "batches"), list(product(("none", "slot", "job"), (1, 2), (1, 2))), ids=str
)
def test_no_bound_is_above_the_optimum_of_a_pipeline(barrier: Barrier, memory: int, batches: int) -> None:
    job = TaskGraphJob("pipe", pipeline(2, batches, 1, barrier), 1)
    instance = instance_of(one_server(2, memory), job, horizon="cyclic")
    optimum = task_graph_optimum(instance)
    assert optimum is not None
    assert max(bound_of(instance, name) for name in ("held_time", "partial_placements")) <= optimum


@pytest.mark.parametrize(("seed", "horizon"), list(product((3, 8, 14, 19, 21, 26, 30), ("cyclic", "finite"))))
def test_no_bound_is_above_the_optimum(seed: int, horizon: Horizon) -> None:
    drawn = random_task_graph_instance(seed, horizon, "period" if horizon == "cyclic" else "makespan")
    instance = replace(drawn, jobs=drawn.task_graph_jobs)
    jobs = instance.task_graph_jobs
    if sum(job.iterations * (len(job.shape.blocks) + len(job.shape.transfers)) for job in jobs) > 9:
        instance = replace(instance, jobs=jobs[:1])
    optimum = task_graph_optimum(instance)
    assert optimum is None or max(bound_of(instance, name) for name in ("held_time", "partial_placements")) <= optimum


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_bounds_that_look_at_each_job_end_with_the_time(horizon: Horizon) -> None:
    operations = compile_instance(
        instance_of(one_server(3), TaskGraphJob("p", pipeline(3, 2, barrier="job"), 1), horizon=horizon)
    )
    fitting = [
        each
        for each in relaxations()
        if each.name in ("held_time", "slot_loads", "partial_placements") and each.applies(operations)
    ]
    assert fitting
    for relaxation in fitting:
        with limited(Clock(0.0, Event())), pytest.raises(OutOfTimeError):
            list(relaxation.bounds(BoundContext(operations), -1, BoundBudget()))
