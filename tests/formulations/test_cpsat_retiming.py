"""The model of parts timed anew: exact for a given placement, and at peace with what stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from jigsaw_opt.checking import check
from jigsaw_opt.documents import instance_sha256
from jigsaw_opt.formulations import cpsat_retiming
from jigsaw_opt.problem import (
    Cluster,
    Depth,
    FreeDepth,
    Instance,
    Job,
    Link,
    Model,
    Operations,
    Plan,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, Timetable, assemble, objective_of
from jigsaw_opt.problem.costs import needed_bytes
from jigsaw_opt.problem.instance import Horizon, Objective
from jigsaw_opt.problem.plan import JobPlan
from jigsaw_opt.solvers.engines.cpsat import new_solver
from jigsaw_opt.solvers.greedy import greedy_timetable
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Status
from jigsaw_opt.solvers.solve import solve
from tests.oracle import optimum
from tests.random_instances import GOALS, random_instance

pytest.importorskip("ortools")

MICRO = 1_000_000
Places = Sequence[Sequence[Gpu]]


def gpus_of(operations: Operations, plan: JobPlan) -> list[Gpu]:
    """The GPUs of a planned job as (server, index)."""
    number = {server.name: s for s, server in enumerate(operations.cluster.servers)}
    named = [gpu.rsplit("/", 1) for gpu in plan.gpus]
    return [(number[server], int(k)) for server, k in named]


def tasks_of(
    operations: Operations, places: Places, jobs: Sequence[int], deadline: int
) -> list[cpsat_retiming.RetimingTask]:
    """Tasks of some jobs, all being placed."""
    servers = operations.cluster.servers
    held: Counter[Gpu] = Counter()
    for job, gpus in zip(operations.jobs, places, strict=True):
        held.update(dict.fromkeys(gpus, job.state_bytes))
    tasks = []
    for index in jobs:
        job, gpus = operations.jobs[index], places[index]
        channel = operations.routes.channel(Counter(s for s, _ in gpus))
        assert channel is not None
        rooms = [servers[gpu[0]].gpu_memory - held[gpu] for gpu in gpus]
        caps = [sum(size <= room for size in job.activation_bytes) for room in rooms]
        tables = [job.blocks[slot].duration_us[servers[s].gpu_type] for slot, (s, _) in enumerate(gpus)]
        numbers = [1000 * s + k for s, k in gpus]
        tasks.append(cpsat_retiming.free_task(job, numbers, tables, channel, caps, deadline))
    return tasks


def timed(model: cpsat_retiming.CpSatRetiming) -> list[cpsat_retiming.RetimedTiming] | None:
    """The best timing, or None where it is proven that there is none."""
    from ortools.sat.python import cp_model

    solver = new_solver()
    solver.parameters.max_deterministic_time = 10.0
    status = solver.solve(model.proto)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return model.plan(solver.value) if status == cp_model.OPTIMAL else None


def frame_of(operations: Operations, limit: int) -> cpsat_retiming.Frame:
    if operations.horizon == "cyclic":
        return cpsat_retiming.Frame(limit)
    return cpsat_retiming.Frame(None, operations.objective == "weighted_completion", 0, limit)


def retimed(instance: Instance, places: Places, limit: int) -> int | None:
    """Objective of all jobs timed anew at a placement, within a limit (the period itself); the checker passes it."""
    operations = compile_instance(instance)
    tasks = tasks_of(operations, places, range(len(places)), limit)
    timings = timed(cpsat_retiming.build(tasks, frame_of(operations, limit), {}, {}))
    if timings is None:
        return None
    decisions = [
        JobDecision(gpus, each.levels, each.blocks, each.transfers) for gpus, each in zip(places, timings, strict=True)
    ]
    period = limit if operations.horizon == "cyclic" else None
    return passed(instance, Timetable(assemble(operations, decisions), period))


def passed(instance: Instance, plan: Timetable) -> int:
    """Objective of a plan, once the checker has passed it."""
    value = objective_of(compile_instance(instance), plan.jobs, plan.period_us)
    stated = Plan.of_jobs(instance.name, instance_sha256(instance), "feasible", value, 0, plan.period_us, plan.jobs)
    assert check(instance, stated) == ()
    return value


def fits_at_once(instance: Instance, places: Places) -> bool:
    """Whether the workers of all jobs fit on their GPUs together, whatever their levels."""
    operations, servers = compile_instance(instance), instance.cluster.servers
    on: dict[Gpu, list[tuple[int, int]]] = {}
    for job, gpus in zip(operations.jobs, places, strict=True):
        for gpu in gpus:
            on.setdefault(gpu, []).append((job.state_bytes, job.activation_bytes[-1]))
    return all(needed_bytes(workers) <= servers[gpu[0]].gpu_memory for gpu, workers in on.items())


def best_places(instance: Instance) -> tuple[list[list[Gpu]], int] | None:
    """The placement of a plan that is proven to be optimal, and its objective."""
    result = solve(instance, "cpsat", Options(threads=1, work_limit=20))
    if result.status is Status.INFEASIBLE:
        return None
    assert result.status is Status.OPTIMAL
    assert result.plan is not None and result.objective is not None
    operations = compile_instance(instance)
    return [gpus_of(operations, job) for job in result.plan.jobs], result.objective


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_the_best_placement_timed_anew_gives_the_optimum(horizon: Horizon, objective: Objective) -> None:
    feasible = 0
    for seed in range(16):
        instance = random_instance(seed, horizon, objective, operations=6)
        found = best_places(instance)
        if found is not None:
            places, best = found
            assert best == optimum(instance)
            feasible += 1
            if not fits_at_once(instance, places):
                continue  # Retiming keeps all jobs in memory.
            longer = best if horizon == "cyclic" else best + 50
            assert retimed(instance, places, longer) == best
            if horizon == "cyclic":  # every longer period is possible
                assert retimed(instance, places, best + 7) == best + 7
            if best > 1:
                assert retimed(instance, places, best - 1) is None
    assert feasible >= 10


@pytest.mark.parametrize("rule", [StaircaseDepth(), FreeDepth(1, 0)])
def test_empty_buckets_without_latency_take_no_link(rule: Depth) -> None:
    # The empty bucket of `a` is ready at 3, amid the transfer of `b`, which keeps the link from 2 to 12.
    servers = tuple(Server(f"s{k}", "v", 2, 1000, MICRO) for k in range(2))
    empty = Model((Segment("g0", {"v": 1}, {"v": 1}, 0, 0), Segment("g1", {"v": 1}, {"v": 1}, 0, 0)))
    full = Model((Segment("g", {"v": 1}, {"v": 1}, 10, 0),))
    jobs = (Job("a", "empty", 2, 2, depth=rule), Job("b", "full", 2, 1))
    cluster = Cluster(servers, (), (Link("l", ("s0", "s1"), MICRO),))
    instance = Instance("empty", cluster, {"empty": empty, "full": full}, jobs)
    places = [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    assert retimed(instance, places, 100) == 12
    assert retimed(replace(instance, objective="weighted_completion"), places, 100) == 8 + 12


def test_a_hint_is_a_solution() -> None:
    from ortools.sat.python import cp_model

    instance = random_instance(3, "finite", "makespan", operations=16)
    operations, plan = compile_instance(instance), greedy_timetable(compile_instance(instance))
    assert plan is not None
    places, end = [gpus_of(operations, job) for job in plan.jobs], max(job.end_us for job in plan.jobs)
    jobs = range(len(places))
    model = cpsat_retiming.build(tasks_of(operations, places, jobs, end), frame_of(operations, end), {}, {})
    model.hint(
        [
            cpsat_retiming.RetimedTiming(
                [tuple(block.level for block in iteration.blocks) for iteration in job.iterations],
                [[block.start_us for block in iteration.blocks] for iteration in job.iterations],
                [[move.start_us for move in iteration.transfers] for iteration in job.iterations],
            )
            for job in plan.jobs
        ]
    )
    solver = new_solver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(model.proto) == cp_model.OPTIMAL
    assert [list(map(tuple, each.levels)) for each in model.plan(solver.value)] == [
        [tuple(block.level for block in iteration.blocks) for iteration in job.iterations] for job in plan.jobs
    ]
