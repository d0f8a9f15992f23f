"""Programs of Gavel, Sia and Muri: small cases worked by hand, and the shared programs."""

from __future__ import annotations

import json
import random
from collections import Counter
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from reference_programs import bisected_duration, gavel_cluster

from jigsaw_opt.formulations.gavel import OBJECTIVES, SharedCluster
from jigsaw_opt.formulations.interleave.rotation import SLOWDOWN, Group, StagedJob, Timing
from jigsaw_opt.formulations.interleave.rounds import GroupTimetable, group_round, normalised_throughput, timetable
from jigsaw_opt.formulations.interleave.set_packing import build as build_groups
from jigsaw_opt.formulations.sia_round import (
    NO_ALLOCATION,
    SiaRound,
    build,
    configurations,
    normalised,
    restart_factors,
)
from jigsaw_opt.solvers.allocation.gavel import solve_gavel
from jigsaw_opt.solvers.allocation.sia_round import solve_round
from jigsaw_opt.solvers.engines.highs import solve_program


def cluster(throughput: list[list[float]], gpus: list[int], capacity: list[int], steps: list[float]) -> SharedCluster:
    jobs = len(gpus)
    return SharedCluster(
        np.array(throughput), np.array(gpus), np.array(capacity), np.array(steps), priority=np.ones(jobs)
    )


def test_every_job_goes_where_it_is_relatively_fastest() -> None:
    solved = solve_gavel(cluster([[4.0, 2.0], [2.0, 2.0]], [1, 1], [1, 1], [1, 1]), "max_sum")
    assert solved.allocation.tolist() == [[1, 0], [0, 1]]
    assert solved.value == pytest.approx(6)


def test_the_total_duration_is_the_work_over_the_capacity() -> None:
    solved = solve_gavel(cluster([[1.0], [2.0]], [1, 1], [1], [300, 1400]), "makespan")
    assert solved.value == pytest.approx(300 + 700)


def test_a_type_that_a_job_cannot_use_is_not_given_to_it() -> None:
    for objective in OBJECTIVES:
        solved = solve_gavel(cluster([[0.0, 1.0], [1.0, 0.5]], [1, 1], [1, 1], [10, 10]), objective)
        assert solved.allocation[0, 0] == 0


@pytest.mark.parametrize("least", [1.0, 599_318.0, 999_999.0, 1_000_001.0, 2e7])
def test_where_the_bisection_ends(least: float) -> None:
    found = bisected_duration(least)
    assert least <= found <= max(1.06 * least, 106)


@pytest.mark.parametrize("jobs", [64, 256, 1024])
def test_shared_programs_have_their_known_values(shared_data: Path, jobs: int) -> None:
    document = json.loads((shared_data / f"cluster/instances/gavel/gavel_jobs{jobs}_seed2.json").read_text())
    problem, reference = gavel_cluster(document), document["reference"]
    fairness, throughput = (solve_gavel(problem, name).value for name in ("max_min", "max_sum"))
    assert fairness == pytest.approx(reference["max_min_fairness_perf/HIGHS"]["val"], rel=1e-6)
    assert throughput == pytest.approx(reference["max_sum_throughput_perf/HIGHS"]["val"], rel=1e-6)
    duration = solve_gavel(problem, "makespan").value
    known = reference["min_total_duration_perf/HIGHS"]["T_hours"]
    assert duration / 3600 <= reference["min_total_duration_perf/ECOS"]["T_hours"]
    assert round(bisected_duration(duration) / 3600, 3) == known


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_allocation_fits_into_the_cluster(objective: str) -> None:
    rng = np.random.default_rng(7)
    problem = SharedCluster(
        rng.uniform(1, 10, (20, 3)), rng.integers(1, 5, 20), np.array([4, 8, 2]), rng.uniform(10, 99, 20), np.ones(20)
    )
    x = solve_gavel(problem, objective).allocation
    assert (x >= 0).all()
    assert (x.sum(axis=1) <= 1 + 1e-9).all()
    assert (problem.gpus @ x <= problem.capacity + 1e-6).all()


TABLE_1_GPUS = np.array([[1, 0], [2, 0], [0, 1], [0, 2], [0, 4]])
TABLE_1_GOODPUT = np.array([[1.0, 1, 2, 3, 4], [2, 4, 1, 2, 3]])


@pytest.fixture
def table_1() -> SiaRound:
    goodput = normalised(TABLE_1_GOODPUT, np.array([1, 1]))
    return build(goodput, TABLE_1_GPUS, np.array([2, 4]), power=1.0)


def test_worked_example_of_the_paper(table_1: SiaRound) -> None:
    solved = solve_round(table_1)
    assert solved is not None
    assert solved.choice.tolist() == [4, 1]
    assert solved.objective == pytest.approx(-8)
    assert solved.bound == pytest.approx(-8, abs=1e-3)


def test_the_integer_program_has_the_same_optimum(table_1: SiaRound) -> None:
    solved = solve_program(table_1.program())
    assert solved is not None
    choice = table_1.choice(solved.values)
    assert choice.tolist() == [4, 1]
    assert table_1.objective(choice) == pytest.approx(solved.objective)
    assert table_1.used(choice).tolist() == [2, 4]


def test_restarts_make_a_change_dear() -> None:
    factors = restart_factors(np.array([300.0, 300, 30]), np.array([0, 2, 3]), np.array([100.0, 100, 100]))
    assert factors.tolist() == [0.75, 0.25, 0.0]
    goodput = np.array([[1.0, 4.0]])
    problem = build(goodput, np.array([[1], [2]]), np.array([2]), factors=factors[:1], current=np.array([0]))
    assert problem.cost.tolist() == [[1.0, pytest.approx((0.75 * 4) ** -0.5)]]


def test_jobs_that_must_keep_what_they_have() -> None:
    problem = build(np.array([[1.0, 4.0], [1.0, 4.0]]), np.array([[1], [2]]), np.array([3]))
    kept = problem.keeping(np.array([True, False]), np.array([0, NO_ALLOCATION]))
    solved = solve_round(kept)
    assert solved is not None
    assert solved.choice.tolist() == [0, 1]
    assert solve_round(problem.keeping(np.array([True, True]), np.array([1, 1]))) is None


def test_configurations_are_parts_of_a_server_or_whole_servers() -> None:
    assert configurations(3, 4) == ((1, 1), (1, 2), (1, 4), (2, 8), (3, 12))
    assert len(configurations(16, 8)) == 16 + 3  # N + log2 R


@pytest.mark.parametrize("power", [-0.5, 1.0])
def test_an_idle_job_costs_whatever_the_sign_of_the_power(power: float) -> None:
    problem = build(np.ones((1, 1)), np.array([[1]]), np.array([1]), power=power)
    assert problem.objective(np.array([NO_ALLOCATION])) == 1.1
    assert problem.objective(np.array([0])) < 1.1


def random_job(draw: random.Random, gpus: int = 1, staircase: bool = False) -> StagedJob:
    load, compute, network = (draw.choice((0, draw.randint(1, 20), draw.randint(1, 400))) for _ in range(3))
    return StagedJob(gpus, load, compute + 1, network, load + compute + network + 1, staircase)


def simulated(order: Group, rounds: int = 60) -> float:
    """Mean period of a rotation, slot by slot, each beginning when what precedes it has ended."""
    ends = [0, 0]
    for i in range(4 * rounds):
        end = ends[-1]
        for position, job in enumerate(order):
            if position == (i + 1) % 4:
                end = max(end, ends[-1] + job.network_us)
            if position == (i + 2) % 4:
                end = max(end, ends[-1] + job.compute_us)
            if position == (i + 3) % 4:
                end = max(end, ends[-2] + job.load_us)
        ends.append(end)
    return (ends[-1] - ends[-1 - 2 * rounds]) / (rounds / 2)


@pytest.mark.parametrize("size", [3, 4])
def test_steady_period_is_what_a_long_rotation_repeats_with(size: int) -> None:
    draw = random.Random(size)
    for _ in range(30):
        group = tuple(random_job(draw) for _ in range(size))
        best = min(simulated(order) for order in permutations(group))
        assert group_round(group, "steady").time_us == pytest.approx(best * SLOWDOWN[size - 1])


@pytest.mark.parametrize("timing", ["published", "steady", "planned"])
def test_a_job_alone_takes_the_time_that_its_trace_states(timing: Timing) -> None:
    assert group_round((StagedJob(4, 117, 68, 20, 107, True),), timing) == (107, (1,), False)


def test_published_period_may_fall_short_of_the_steady_one() -> None:
    # Slots in which nobody has a stage count from zero in Muri's simulator.
    group = (StagedJob(8, 500, 167_000, 59_000, 192_000),) * 2
    assert group_round(group, "published").time_us == pytest.approx(334_500 * SLOWDOWN[1])
    assert group_round(group, "steady").time_us == pytest.approx(393_000 * SLOWDOWN[1])


def test_a_short_job_iterates_often_while_a_long_one_loads() -> None:
    found = timetable((StagedJob(1, 900, 100, 0, 1000), StagedJob(1, 0, 100, 50, 150)))
    assert (found.period_us, found.iterations) == (1000, (1, 6))
    assert sorted(found.sequence) == [0] + [1] * 6


def test_shallow_workers_of_one_job_make_room_for_deep_ones_of_another() -> None:
    # 300 = 100 forward + 200 backward; the shallowest of 8 workers does an eighth of the backward pass, 25.
    job = StagedJob(8, 0, 300, 0, 300, True)
    found = timetable((job, job))
    assert (found.period_us, found.iterations, found.staircase) == (425, (1, 1), True)
    assert found.backward == (False, True)
    assert timetable((job._replace(staircase=False),) * 2).period_us == 600


def test_a_staircase_alone_shortens_the_part_of_the_exchange_that_nothing_hides() -> None:
    job = StagedJob(8, 10, 100, 60, 150, True)
    assert group_round((job,), "planned") == (140, (1,), True)
    assert group_round((job._replace(alone_us=300),), "planned") == (285, (1,), True)
    assert group_round((job._replace(alone_us=105),), "planned") == (105, (1,), False)
    assert group_round((job._replace(staircase=False),), "planned") == (150, (1,), False)


def replayed(group: Group, found: GroupTimetable, rounds: int) -> list[int]:
    """End of every round on all the GPUs, each stage beginning as soon as its resource and its job let it."""
    ends, loaders, gpus, network = [0] * len(group), [0, 0], [Fraction(0)] * group[0].gpus, Fraction(0)
    finished = []
    for _ in range(rounds):
        for number in found.sequence:
            job = group[number]
            bent = found.staircase and job.staircase
            loaders[found.loader[number]] = loaded = max(loaders[found.loader[number]], ends[number]) + job.load_us
            for gpu, free in enumerate(gpus):
                level = (
                    Fraction(gpu + 1 if found.backward[number] else job.gpus - gpu, job.gpus) if bent else Fraction(1)
                )
                gpus[gpu] = max(free, loaded) + job.compute_us * (1 + 2 * level) / 3
            network = max(network, *gpus) + job.network_us * (Fraction(3, 4) if bent else 1)
            ends[number] = network
        finished.append(network)
    return finished


@pytest.mark.parametrize("staircase", [False, True])
def test_a_timetable_repeats_with_its_period_on_every_gpu(staircase: bool) -> None:
    draw = random.Random(11)
    for _ in range(20):
        gpus = draw.choice((2, 5, 8))
        group = tuple(random_job(draw, gpus, staircase) for _ in range(draw.randint(2, 4)))
        found = timetable(group)
        ends = replayed(group, found, 40)
        assert ends[-1] - ends[19] <= 20 * found.period_us
        assert [found.sequence.count(number) for number in range(len(group))] == list(found.iterations)
        work = sum(n * job.compute_us for n, job in zip(found.iterations, group, strict=True))
        assert found.period_us >= work * (1 if not staircase else Fraction(1, 3))


def test_columns_are_the_groups_that_the_jobs_can_form() -> None:
    one, other, wide = StagedJob(1, 1, 2, 3, 6), StagedJob(1, 3, 2, 1, 6), StagedJob(2, 1, 2, 3, 6)
    model = build_groups(Counter({(one,): 5, (other,): 1, (wide,): 2}), 4, 10, "steady")
    made = {tuple(sorted(part for part in column if part >= 0)) for column in model.columns.tolist()}
    expected = {(0,) * k for k in range(1, 5)} | {(0,) * k + (1,) for k in range(4)} | {(2,), (2, 2)}
    assert made == expected
    assert set(model.gpus[model.columns[:, 0] == 2]) == {2}


def test_solution_is_read_back_as_groups_of_single_jobs() -> None:
    a, b = (StagedJob(1, k, 2, 3, 9) for k in (1, 2))
    pair: Group = (a, b)
    model = build_groups(Counter({pair: 2, (a,): 1}), 2, 2, "steady")
    columns = model.columns.tolist()
    groups = model.groups({columns.index([0, 0]): 1, columns.index([1, -1]): 1})
    assert groups == Counter({(a, a, b, b): 1, (a,): 1})
    total = sum(n * v for n, v in zip((1, 1), (model.values[columns.index([0, 0])], 1.0)))
    assert normalised_throughput(groups, "steady") == pytest.approx(total)
