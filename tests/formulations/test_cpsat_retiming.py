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
from jigsaw_opt.problem.compiled.timetable import Gpu, JobDecision, Timetable, assemble, job_end, objective_of
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
        tasks.append(cpsat_retiming.RetimingTask(job, numbers, tables, channel, caps, deadline))
    return tasks


def busy_of(
    operations: Operations, plan: Timetable, jobs: Sequence[int]
) -> tuple[cpsat_retiming.Busy, cpsat_retiming.Busy]:
    """What all other jobs take of GPUs and links, cut at the end of a period."""
    gpus: dict[int, list[tuple[int, int]]] = {}
    links: dict[int, list[tuple[int, int]]] = {}
    for index, job in enumerate(plan.jobs):
        if index in jobs:
            continue
        places = gpus_of(operations, job)
        channel = operations.routes.channel(Counter(s for s, _ in places))
        assert channel is not None
        for iteration in job.iterations:
            for (s, k), block in zip(places, iteration.blocks, strict=True):
                gpus.setdefault(1000 * s + k, []).extend(around(block.start_us, block.end_us, plan.period_us))
            for link in channel.links:
                for move in iteration.transfers:
                    links.setdefault(link, []).extend(around(move.start_us, move.end_us, plan.period_us))
    return gpus, links


def around(start: int, end: int, period: int | None) -> list[tuple[int, int]]:
    if start == end or period is None:
        return [(start, end)] if start < end else []
    low, high = start % period, start % period + end - start
    return [(low, min(high, period))] + ([(0, high - period)] if high > period else [])


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
            if best > 1:
                assert retimed(instance, places, best - 1) is None
    assert feasible >= 10


@pytest.mark.parametrize("seed", [0, 2, 4, 5, 8])
def test_every_longer_period_is_possible(seed: int) -> None:
    instance = random_instance(seed, "cyclic", "period", operations=10)
    found = best_places(instance)
    assert found is not None
    places, best = found
    for more in (1, 3, 100):
        assert retimed(instance, places, best + more) == best + more


@pytest.mark.parametrize(("horizon", "objective"), GOALS)
def test_parts_keep_to_what_stays(horizon: Horizon, objective: Objective) -> None:
    tried = 0
    for seed in range(12):
        instance = random_instance(seed, horizon, objective, operations=16)
        operations = compile_instance(instance)
        plan = greedy_timetable(operations)
        for index in range(len(operations.jobs)) if plan is not None and len(operations.jobs) > 1 else ():
            assert plan is not None
            before = passed(instance, plan)
            plan = part_timed_anew(operations, plan, index)
            assert passed(instance, plan) <= before
            tried += 1
    assert tried >= 8


def part_timed_anew(operations: Operations, plan: Timetable, index: int) -> Timetable:
    """The plan with one job timed anew; it may stay as it was, so there is a solution."""
    places = [gpus_of(operations, job) for job in plan.jobs]
    end = job_end(plan.jobs[index])
    limit = plan.period_us or end * (
        operations.jobs[index].weight if operations.objective == "weighted_completion" else 1
    )
    [task] = tasks_of(operations, places, [index], plan.period_us or end)
    model = cpsat_retiming.build([task], frame_of(operations, limit), *busy_of(operations, plan, [index]))
    timings = timed(model)
    assert timings is not None
    [it] = timings
    [anew] = assemble(
        replace(operations, jobs=(operations.jobs[index],)),
        [JobDecision(places[index], it.levels, it.blocks, it.transfers)],
    )
    return Timetable((*plan.jobs[:index], anew, *plan.jobs[index + 1 :]), plan.period_us)


def lone(rule: Depth, iterations: int = 2, workers: int = 3, memory: tuple[int, ...] = (1000,) * 3) -> Instance:
    """One job of three levels on servers of one GPU each, with a slow link between neighbours."""
    servers = tuple(Server(f"s{k}", "v", 1, size, MICRO) for k, size in enumerate(memory))
    links = tuple(Link(f"l{k}", (f"s{k}", f"s{k + 1}"), MICRO) for k in range(len(memory) - 1))
    segments = tuple(Segment(f"g{k}", {"v": 1}, {"v": 2 + k}, 6, 2) for k in range(3))
    jobs = (Job("a", "m", workers, iterations, depth=rule),)
    return Instance("lone", Cluster(servers, (), links), {"m": Model(segments, state_factor=1)}, jobs)


@pytest.mark.parametrize(
    "rule",
    [FreeDepth(), FreeDepth(2), FreeDepth(1, 0), FreeDepth(1, "3/4"), FreeDepth(1, None, 0), FreeDepth(2, 0, 1)],
)
def test_free_depth_is_as_shallow_as_its_rule_admits(rule: FreeDepth) -> None:
    instance = lone(rule)
    found = best_places(instance)
    assert found is not None
    places, best = found
    assert retimed(instance, places, best + 50) == best


def test_a_mean_depth_above_one_is_infeasible() -> None:
    places = [[(0, 0), (1, 0), (2, 0)]]
    assert retimed(lone(FreeDepth(1, 2)), places, 1000) is None


def test_memory_decides_who_goes_deep() -> None:
    # 18 bytes of state; three levels ask for 4, 6 and 6 more.
    instance = lone(StaircaseDepth(), memory=(22, 1000, 22))
    assert retimed(instance, [[(0, 0), (1, 0), (2, 0)]], 1000) is None
    roomy = lone(StaircaseDepth(), memory=(22, 1000, 1000))
    operations, places = compile_instance(roomy), [[(0, 0), (1, 0), (2, 0)]]
    timings = timed(cpsat_retiming.build(tasks_of(operations, places, [0], 1000), frame_of(operations, 1000), {}, {}))
    assert timings is not None
    assert [row[0] for row in timings[0].levels] == [1, 1]
    assert [sorted(row) for row in timings[0].levels] == [[1, 2, 3], [1, 2, 3]]


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


def test_levels_may_skip_segments() -> None:
    instance = lone(StaircaseDepth(), iterations=1, workers=2, memory=(1000, 1000))
    skipping = replace(instance, models={"m": replace(instance.models["m"], levels=(2, 3))})
    places = [[(0, 0), (1, 0)]]
    found = best_places(skipping)
    assert found is not None
    assert retimed(skipping, places, 100) == found[1]


def test_a_hint_is_a_solution() -> None:
    from ortools.sat.python import cp_model

    instance = random_instance(3, "finite", "makespan", operations=16)
    operations, plan = compile_instance(instance), greedy_timetable(compile_instance(instance))
    assert plan is not None
    places, end = [gpus_of(operations, job) for job in plan.jobs], max(map(job_end, plan.jobs))
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
