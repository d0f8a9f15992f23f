"""Groups of jobs that take turns at the stages of an iteration: their period and their program."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest

from jigsaw_opt.formulations.interleave import (
    SLOWDOWN,
    Group,
    StagedJob,
    Timing,
    build,
    group_round,
    normalised_throughput,
)
from jigsaw_opt.formulations.interleave.timetable import GroupTimetable, timetable


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
    for _ in range(60):
        group = tuple(random_job(draw) for _ in range(size))
        best = min(simulated(order) for order in permutations(group))
        assert group_round(group, "steady").time_us == pytest.approx(best * SLOWDOWN[size - 1])


def test_two_jobs_may_swap_loading_with_the_rest() -> None:
    group = (StagedJob(1, 100, 60, 40, 200), StagedJob(1, 100, 50, 50, 200))
    assert group_round(group, "steady").time_us == pytest.approx(200 * SLOWDOWN[1])


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


def test_a_staircase_exchanges_three_quarters_of_the_bytes() -> None:
    job = StagedJob(4, 0, 3, 400, 403, True)
    assert timetable((job, job)).period_us == pytest.approx(600, abs=4)


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
    for _ in range(40):
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
    model = build(Counter({(one,): 5, (other,): 1, (wide,): 2}), 4, 10, "steady")
    made = {tuple(sorted(part for part in column if part >= 0)) for column in model.columns.tolist()}
    expected = {(0,) * k for k in range(1, 5)} | {(0,) * k + (1,) for k in range(4)} | {(2,), (2, 2)}
    assert made == expected
    assert set(model.gpus[model.columns[:, 0] == 2]) == {2}


def test_solution_is_read_back_as_groups_of_single_jobs() -> None:
    a, b = (StagedJob(1, k, 2, 3, 9) for k in (1, 2))
    pair: Group = (a, b)
    model = build(Counter({pair: 2, (a,): 1}), 2, 2, "steady")
    columns = model.columns.tolist()
    groups = model.groups({columns.index([0, 0]): 1, columns.index([1, -1]): 1})
    assert groups == Counter({(a, a, b, b): 1, (a,): 1})
    total = sum(n * v for n, v in zip((1, 1), (model.values[columns.index([0, 0])], 1.0)))
    assert normalised_throughput(groups, "steady") == pytest.approx(total)
