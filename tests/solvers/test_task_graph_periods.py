"""Periods of task-graph jobs whose iterations overlap: known answers, where memory or sharded blocks set the period."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from random import Random

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.problem import (
    Cluster,
    Edge,
    Instance,
    MemoryInterval,
    Server,
    Slot,
    TaskGraph,
    TaskGraphBlock,
    TaskGraphJob,
    compile_instance,
)
from jigsaw_opt.problem.compiled.timetable import Timetable
from jigsaw_opt.solvers.activities.heuristic import PlacedJobs
from jigsaw_opt.solvers.activities.placing import placements
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Result, Status, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.solvers.solve_state import SolveState
from tests.random_task_graphs import random_task_graph_instance

pytest.importorskip("ortools")


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


def solved(instance: Instance, solver: str = "auto") -> Result:
    return solve(instance, solver, Options(threads=1, work_limit=20.0))


@pytest.mark.parametrize(("memory", "period"), [(1, 16), (2, 8), (3, 8), (4, 4)])
def test_one_chain_there_and_back(memory: int, period: int) -> None:
    # The first device holds memory for all 16; with four units no device waits.
    result = solved(there_and_back(4, memory, [0, 1, 2, 3]))
    assert (result.objective, result.status) == (period, Status.OPTIMAL)


@pytest.mark.parametrize(("memory", "period"), [(1, 26), (2, 13), (4, 8)])
def test_two_chains_that_cross(memory: int, period: int) -> None:
    result = solved(there_and_back(4, memory, [0, 1, 2, 3], [3, 2, 1, 0]))
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
    assert solved(instance, "greedy").objective == period


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
