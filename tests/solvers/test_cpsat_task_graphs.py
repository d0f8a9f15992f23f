"""`cpsat` on jobs with a task graph: known answers, alike parts, periods, and what `tests.task_graph_oracle` finds."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.formulations.cpsat.parts import alike_parts, sorted_starts
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
    compile_instance,
)
from jigsaw_opt.problem.compiled.task_graph import compile_task_graph
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.task_graph import Barrier
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.random_task_graphs import random_task_graph_instance

pytest.importorskip("ortools")

from tests.task_graph_oracle import task_graph_optimum

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


SEEDS: dict[tuple[Horizon, Objective], tuple[int, ...]] = {
    ("finite", "makespan"): (3, 15, 40, 57, 71, 89, 117, 134, 141, 154, 172),
    ("finite", "weighted_completion"): (3, 6, 11, 13, 16, 26, 29, 34),
    ("cyclic", "period"): (3, 14, 17, 19, 21, 48, 96, 132, 160, 163, 177, 182, 194),
}


def two_batches(memory: int, barrier: bool) -> Instance:
    """Forward passes of 1 and backward passes of 2 on one GPU, each pair with one byte held in between."""
    blocks = tuple(TaskGraphBlock(f"{kind}{b}", ("s",), {"v": 1 + (kind == "B")}) for b in range(2) for kind in "FB")
    edges = (*(Edge(f"F{b}", f"B{b}") for b in range(2)), Edge("F0", "F1"), Edge("F1", "B0"))
    holds = tuple(MemoryInterval(f"F{b}", f"B{b}", 1) for b in range(2))
    shape = TaskGraph((Slot("s"),), blocks, (), edges, "slot" if barrier else "none", holds)
    cluster = Cluster((Server("s", "v", 1, memory, 10**6),))
    return Instance("two", cluster, {}, (TaskGraphJob("j", shape, 1),), "cyclic", "period")


@pytest.mark.parametrize("barrier", [True, False])
def test_the_oracle_on_known_answers(barrier: bool) -> None:
    # All of the work is 6; both batches are held at once, for F1 comes before B0.
    assert task_graph_optimum(two_batches(2, barrier)) == 6
    assert task_graph_optimum(two_batches(1, barrier)) is None
    finite = replace(two_batches(2, barrier), horizon="finite", objective="weighted_completion")
    job = replace(finite.task_graph_jobs[0], iterations=2, release_us=3, weight=5)
    assert task_graph_optimum(replace(finite, jobs=(job,))) == 5 * (3 + 12)


@pytest.mark.parametrize(
    ("horizon", "objective", "seed"), [(*kind, seed) for kind, seeds in SEEDS.items() for seed in seeds]
)
def test_the_optimum(horizon: Horizon, objective: Objective, seed: int) -> None:
    drawn = random_task_graph_instance(seed, horizon, objective)
    # Half of them with so little memory that it often matters.
    memory = 4 + seed % 10 if seed % 2 else 100
    servers = tuple(replace(server, gpu_memory=memory) for server in drawn.cluster.servers)
    instance = replace(drawn, cluster=replace(drawn.cluster, servers=servers), jobs=drawn.task_graph_jobs)
    result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE) and result.stopped_by is StoppedBy.PROOF
    assert result.objective == task_graph_optimum(instance)


@pytest.mark.parametrize("barrier", ["none", "slot"])
def test_the_optimum_where_memory_holds_a_pipeline_back(barrier: Barrier) -> None:
    job = TaskGraphJob("pipe", pipeline(2, 2, 1, barrier), 1)
    found = []
    for memory in (1, 2):
        instance = instance_of(one_server(2, memory), job, horizon="cyclic")
        found.append(task_graph_optimum(instance))
        assert solve(instance, "cpsat", Options(threads=1, work_limit=20.0)).objective == found[-1]
    tight, ample = found
    assert tight is not None and ample is not None and tight > ample


BARRIERS: tuple[Barrier, ...] = ("none", "slot", "job")


def alike(seed: int, horizon: Horizon) -> Instance:
    """Two or three times the same random blocks, edges and holds on two slots."""
    random = Random(f"alike/{seed}")
    copies = random.choice((2, 2, 3))
    size = 2 if copies == 3 else random.choice((2, 3))
    slots = [random.choice("ab") for _ in range(size - 1)] + ["b"]
    times = [random.randrange(1, 4) for _ in range(size)]
    ahead = [(0, n, 0) for n in range(1, size) if random.random() < 0.7]
    edges = [*ahead, *([(size - 1, 0, 1)] if random.random() < 0.3 else [])]
    pairs = [(a, b) for a in range(size) for b in range(size) if slots[a] == slots[b] and random.random() < 0.6]
    blocks = [TaskGraphBlock(f"{k}.{n}", (slots[n],), {"v": times[n]}) for k in range(copies) for n in range(size)]
    blocks.append(TaskGraphBlock("alone", ("a",), {"v": 1}))
    shape = TaskGraph(
        (Slot("a"), Slot("b")),
        tuple(blocks),
        (),
        tuple(Edge(f"{k}.{a}", f"{k}.{b}", lag) for k in range(copies) for a, b, lag in edges),
        random.choice(BARRIERS),
        tuple(MemoryInterval(f"{k}.{a}", f"{k}.{b}", 1 + (a + b) % 2) for k in range(copies) for a, b in pairs),
    )
    cluster = Cluster((Server("s", "v", 2, random.choice((2, 3, 4)), 10**6),))
    job = TaskGraphJob("job", shape, random.choice((1, 1, 2)) if size * copies < 6 else 1)
    return Instance("alike", cluster, {}, (job,), horizon, "period" if horizon == "cyclic" else "makespan")


@pytest.mark.parametrize("horizon", ["finite", "cyclic"])
def test_the_optimum_of_alike_parts(horizon: Horizon) -> None:
    found = []
    for seed in range(16):
        instance = alike(seed, horizon)
        assert alike_parts(compile_task_graph(instance.task_graph_jobs[0]))
        result = solve(instance, "cpsat", Options(threads=1, work_limit=20.0))
        found.append(result.objective)
        assert result.objective == task_graph_optimum(instance), seed
    assert None in found
    assert len(set(found)) > 4


def test_starts_are_sorted_part_by_part() -> None:
    blocks = tuple(TaskGraphBlock(f"{kind}{k}", ("s",), {"v": 1}) for k in range(2) for kind in "FB")
    edges, holds = (
        tuple(made(f"F{k}", f"B{k}") for k in range(2)) for made in (Edge, lambda a, b: MemoryInterval(a, b, 1))
    )
    shape = TaskGraph((Slot("s"),), blocks, (), edges, "none", holds)
    graph = compile_task_graph(TaskGraphJob("job", shape, 1))
    assert sorted_starts(graph, [[4, 6, 0, 7]]) == [[0, 6, 4, 7]]


def there_and_back(devices: int, memory: int, *paths: list[int]) -> Instance:
    """Forward blocks of 1 along each path, backward ones of 3 back; 1 is held from the one to the other."""
    blocks, edges, holds = list[TaskGraphBlock](), list[Edge](), list[MemoryInterval]()
    for number, path in enumerate(paths):
        chain = [f"f{number}.{device}" for device in path] + [f"b{number}.{device}" for device in path[::-1]]
        slots = [f"d{device}" for device in [*path, *path[::-1]]]
        blocks += [TaskGraphBlock(n, (s,), {"v": 3 if n[0] == "b" else 1}) for n, s in zip(chain, slots, strict=True)]
        edges += [Edge(before, after) for before, after in pairwise(chain)]
        holds += [MemoryInterval(f"f{number}.{device}", f"b{number}.{device}", 1) for device in path]
    own = tuple(Slot(f"d{device}") for device in range(devices))
    shape = TaskGraph(own, tuple(blocks), (), tuple(edges), "none", tuple(holds))
    cluster = Cluster((Server("s", "v", devices, memory, 10**6),))
    return Instance("there and back", cluster, {}, (TaskGraphJob("job", shape, 1),), "cyclic", "period")


def solved_by(instance: Instance, solver: str = "auto") -> Result:
    return solve(instance, solver, Options(threads=1, work_limit=20.0))


@pytest.mark.parametrize(("memory", "period"), [(1, 16), (2, 8), (3, 8), (4, 4)])
def test_one_chain_there_and_back(memory: int, period: int) -> None:
    # The first device holds memory for all 16; with four units no device waits.
    result = solved_by(there_and_back(4, memory, [0, 1, 2, 3]))
    assert (result.objective, result.status) == (period, Status.OPTIMAL)


@pytest.mark.parametrize(("memory", "period"), [(1, 26), (2, 13), (4, 8)])
def test_two_chains_that_cross(memory: int, period: int) -> None:
    result = solved_by(there_and_back(4, memory, [0, 1, 2, 3], [3, 2, 1, 0]))
    assert (result.objective, result.status) == (period, Status.OPTIMAL)


def modulo_timetables(instance: Instance, most: int, seed: int = 0) -> list[Timetable]:
    """Modulo schedules on the first placement, each of a shorter period than the one before."""
    operations = compile_instance(instance)
    found: list[Timetable] = []
    for placement in islice(placements(operations, seed), 1):
        schedules = PlacedJobs(operations, placement).modulo_schedules(Random(seed), most)
        found += [timetable for timetable in schedules if timetable is not None]
    return found


@pytest.mark.parametrize(("memory", "period"), [(2, 8), (4, 4)])
def test_modulo_schedules_overlap_periods(memory: int, period: int) -> None:
    instance = there_and_back(4, memory, [0, 1, 2, 3])
    found = modulo_timetables(instance, 16)
    assert found[-1].period_us == period
    assert [timetable.period_us for timetable in modulo_timetables(instance, 16)] == [each.period_us for each in found]
    assert solved_by(instance, "greedy").objective == period


def test_modulo_schedules_of_random_instances_are_correct() -> None:
    checked = 0
    for seed in range(40):
        drawn = random_task_graph_instance(seed, "cyclic", "period")
        servers = tuple(replace(server, gpu_memory=6 + seed % 8) for server in drawn.cluster.servers)
        instance = drawn if seed % 2 else replace(drawn, cluster=replace(drawn.cluster, servers=servers))
        for timetable in modulo_timetables(instance, 200, seed):
            checked += 1
            solve_state = SolveState("modulo", compile_instance(instance), Options(), lambda event: None)
            solve_state.offer(timetable)
            plan = solve_state.result(StoppedBy.COMPLETED).plan
            assert plan is not None
            assert not check(instance, plan), seed
    assert checked >= 40
