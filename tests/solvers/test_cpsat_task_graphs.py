"""`cpsat` on jobs with a task graph: known answers, both horizons, and random instances."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from jigsaw_opt.formulations.cpsat.parts import alike_parts
from jigsaw_opt.instances.sources import instance_from
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    Link,
    MemoryInterval,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
)
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.task_graph import Barrier
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from tests.random_task_graphs import random_task_graph_instance

pytest.importorskip("ortools")

FT06 = (
    ((2, 1), (0, 3), (1, 6), (3, 7), (5, 3), (4, 6)),
    ((1, 8), (2, 5), (4, 10), (5, 10), (0, 10), (3, 4)),
    ((2, 5), (3, 4), (5, 8), (0, 9), (1, 1), (4, 7)),
    ((1, 5), (0, 5), (2, 5), (3, 3), (4, 8), (5, 9)),
    ((2, 9), (1, 3), (4, 5), (5, 4), (0, 3), (3, 1)),
    ((1, 3), (3, 3), (5, 9), (0, 10), (4, 4), (2, 1)),
)
"""The job shop of Fisher and Thompson (1963): machine and time of each operation of six jobs; its makespan is 55."""

FT10 = (
    "029178209336449511662756844921 043290475911369128646546772830 191085339274890510712689945433",
    "181295071499609852785398922543 214006122561326469821749972653 284102552395848972047665406725",
    "146037361213632521932889730455 231086146574432688819948736379 076169376551285911640789426874",
    "185013261607864976547352490745",
)
"""That of ten jobs on ten machines: digits of a machine and two of a time by turns. Its makespan is 930."""


def one_server(gpus: int, memory: int = 1000) -> Cluster:
    return Cluster((Server("s", "v", gpus, memory, 10**6),))


def instance_of(cluster: Cluster, *jobs: TaskGraphJob, horizon: Horizon = "finite") -> Instance:
    return Instance("shapes", cluster, {}, jobs, horizon, "period" if horizon == "cyclic" else "makespan")


def solved(instance: Instance) -> Result:
    return solve(instance, "cpsat", Options(threads=1, work_limit=20.0))


def pipeline(stages: int, batches: int, activations: int = 0, barrier: Barrier = "none") -> TaskGraph:
    """Stages of one slot each; a forward pass takes 1 and a backward pass 2, and activations are held in between."""
    names = [(kind, batch, stage) for batch in range(batches) for stage in range(stages) for kind in "FB"]
    blocks = tuple(TaskGraphBlock(f"{k}{b}.{s}", (f"s{s}",), {"v": 1 + (k == "B")}) for k, b, s in names)
    edges = []
    for batch in range(batches):
        chain = [f"F{batch}.{s}" for s in range(stages)] + [f"B{batch}.{s}" for s in reversed(range(stages))]
        edges += [Edge(before, after) for before, after in pairwise(chain)]
    holds = tuple(MemoryInterval(f"F{b}.{s}", f"B{b}.{s}", activations) for b in range(batches) for s in range(stages))
    slots = tuple(Slot(f"s{s}") for s in range(stages))
    return TaskGraph(slots, blocks, (), tuple(edges), barrier, holds if activations else ())


def ft06() -> TaskGraphJob:
    """A classic job shop as one job."""
    blocks = [
        TaskGraphBlock(f"{j}.{k}", (f"m{machine}",), {"v": time})
        for j, job in enumerate(FT06)
        for k, (machine, time) in enumerate(job)
    ]
    edges = [Edge(f"{j}.{k}", f"{j}.{k + 1}") for j in range(6) for k in range(5)]
    return TaskGraphJob("shop", TaskGraph(tuple(Slot(f"m{m}") for m in range(6)), tuple(blocks), (), tuple(edges)), 1)


def test_a_classic_job_shop() -> None:
    result = solved(instance_of(one_server(6), ft06()))
    assert (result.status, result.objective) == (Status.OPTIMAL, 55)


def test_a_pipeline_whose_period_meets_its_bound() -> None:
    result = solve(instance_from("pipeline/overlapped"), "cpsat", Options(threads=1, work_limit=4.0))
    assert (result.status, result.objective) == (Status.OPTIMAL, 198_000)


def test_a_job_shop_whose_orders_are_jobs_on_gpus_of_their_own_types() -> None:
    servers = tuple(Server(f"s{m}", f"t{m}", 1, 1, 1) for m in range(10))
    links = tuple(Link(f"l{m}", (f"s{m}", "switch"), 1, 0) for m in range(10))
    slots, jobs = tuple(Slot(f"m{m}") for m in range(10)), []
    for number, row in enumerate(" ".join(FT10).split()):
        pairs = [(row[k], int(row[k + 1 : k + 3])) for k in range(0, 30, 3)]
        blocks = tuple(TaskGraphBlock(m, (f"m{m}",), {f"t{m}": time}) for m, time in pairs)
        edges = tuple(Edge(before.name, after.name) for before, after in pairwise(blocks))
        jobs.append(TaskGraphJob(f"j{number}", TaskGraph(slots, blocks, (), edges), 1))
    instance = instance_of(Cluster(servers, ("switch",), links), *jobs)
    result = solve(instance, "cpsat", Options(threads=1, work_limit=1.0))
    assert (result.status, result.objective) == (Status.OPTIMAL, 930)


@pytest.mark.parametrize(
    ("memory", "barrier", "period"),
    # Without a barrier one slot's work is the period; a pipeline that flushes has the bubbles of 1F1B, and with memory
    # for one batch a stage waits until the gradient of each is back.
    [(3, "none", 9), (3, "slot", 15), (1, "slot", 27)],
)
def test_periods_of_a_pipeline(memory: int, barrier: Barrier, period: int) -> None:
    job = TaskGraphJob("pipe", pipeline(3, 3, 1, barrier), 1)
    result = solved(instance_of(one_server(3, memory), job, horizon="cyclic"))
    assert (result.status, result.objective) == (Status.OPTIMAL, period)


def test_micro_batches_are_alike_and_chains_of_other_times_are_not() -> None:
    graph = compile_task_graph(TaskGraphJob("pipe", pipeline(2, 3, 1), 1))
    assert alike_parts(graph) == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]]
    blocks = graph.shape.blocks
    other = replace(graph.shape, blocks=(replace(blocks[0], duration_us={"v": 9}), *blocks[1:]))
    assert alike_parts(compile_task_graph(TaskGraphJob("pipe", other, 1))) == [[[4, 5, 6, 7], [8, 9, 10, 11]]]


def test_a_hold_longer_than_the_period_counts_as_often_as_it_overlaps_itself() -> None:
    job = TaskGraphJob("pipe", pipeline(4, 1, 1), 1)
    periods = {
        memory: solved(instance_of(one_server(4, memory), job, horizon="cyclic")).objective for memory in (1, 2, 4)
    }
    # From the first forward pass to its gradient is 4 + 4 * 2 = 12 on the first stage.
    assert periods == {1: 12, 2: 6, 4: 3}


def test_memory_for_no_hold_is_proven_to_leave_no_plan() -> None:
    job = TaskGraphJob("pipe", pipeline(2, 1, 5), 1)
    for horizon in ("finite", "cyclic"):
        result = solved(instance_of(one_server(2, 4), job, horizon=horizon))
        assert (result.status, result.stopped_by) == (Status.INFEASIBLE, StoppedBy.PROOF)
        assert result.conflicts[0].jobs == ("pipe",)


def test_a_job_with_more_slots_than_gpus_has_no_plan() -> None:
    assert solved(instance_of(one_server(1), TaskGraphJob("pipe", pipeline(2, 1), 1))).status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("horizon", "objective"), [("finite", "makespan"), ("finite", "weighted_completion"), ("cyclic", "period")]
)
def test_random_instances_are_decided(seed: int, horizon: Horizon, objective: Objective) -> None:
    instance = random_task_graph_instance(seed, horizon, objective)
    result = solved(replace(instance, jobs=instance.task_graph_jobs))
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert result.stopped_by is StoppedBy.PROOF
