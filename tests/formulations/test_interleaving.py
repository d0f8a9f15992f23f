"""Groups of jobs that take turns at the stages of an iteration: their period and their program."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import pytest

from jigsaw_opt.formulations.interleave import SLOWDOWN, Group, StagedJob, build, group_times, normalised_throughput
from jigsaw_opt.problem.workload import StageTimes


def random_times(draw: random.Random) -> StageTimes:
    load, compute, network = (draw.choice((0, draw.randint(1, 20), draw.randint(1, 400))) for _ in range(3))
    return StageTimes(load, compute + 1, network, load + compute + network + 1)


def simulated(order: tuple[StageTimes, ...], rounds: int = 60) -> float:
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
        group = tuple(random_times(draw) for _ in range(size))
        best = min(simulated(order) for order in permutations(group))
        (found,) = group_times([group], "steady")
        assert found == pytest.approx(best * SLOWDOWN[size - 1])


def test_two_jobs_may_swap_loading_with_the_rest() -> None:
    group = (StageTimes(100, 60, 40, 200), StageTimes(100, 50, 50, 200))
    (found,) = group_times([group], "steady")
    assert found == pytest.approx(200 * SLOWDOWN[1])


def test_a_job_alone_takes_the_time_that_its_trace_states() -> None:
    assert list(group_times([(StageTimes(117, 68, 0, 107),)], "published")) == [107]


def test_published_period_may_fall_short_of_the_steady_one() -> None:
    # Slots in which nobody has a stage count from zero in Muri's simulator.
    group = (StageTimes(500, 167_000, 59_000, 192_000),) * 2
    published, steady = (float(group_times([group], rotation)[0]) for rotation in ("published", "steady"))
    assert published == pytest.approx(334_500 * SLOWDOWN[1])
    assert steady == pytest.approx(393_000 * SLOWDOWN[1])


def test_columns_are_the_groups_that_the_jobs_can_form() -> None:
    one, other, wide = (StagedJob(gpus, StageTimes(1, 2, 3, 6 + gpus)) for gpus in (1, 1, 2))
    other = other._replace(times=StageTimes(3, 2, 1, 6))
    model = build(Counter({(one,): 5, (other,): 1, (wide,): 2}), 4, 10, "steady")
    made = {tuple(sorted(part for part in column if part >= 0)) for column in model.columns.tolist()}
    expected = {(0,) * k for k in range(1, 5)} | {(0,) * k + (1,) for k in range(4)} | {(2,), (2, 2)}
    assert made == expected
    assert set(model.gpus[model.columns[:, 0] == 2]) == {2}


def test_solution_is_read_back_as_groups_of_single_jobs() -> None:
    a, b = (StagedJob(1, StageTimes(k, 2, 3, 9)) for k in (1, 2))
    pair: Group = (a, b)
    model = build(Counter({pair: 2, (a,): 1}), 2, 2, "steady")
    columns = model.columns.tolist()
    groups = model.groups({columns.index([0, 0]): 1, columns.index([1, -1]): 1})
    assert groups == Counter({(a, b, a, b): 1, (a,): 1})
    total = sum(n * v for n, v in zip((1, 1), (model.values[columns.index([0, 0])], 1.0)))
    assert normalised_throughput(groups, "steady") == pytest.approx(total)
