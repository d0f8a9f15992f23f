"""The levels that a free job asks for, in every shape."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement, permutations

import pytest

from jigsaw_opt.instances import generate
from jigsaw_opt.problem.compiled.operations import OperationGraph, compile_instance
from jigsaw_opt.solvers.placement.layout import Layout, demands, exchange_us, shapes
from jigsaw_opt.solvers.placement.levels import SHAPES, LevelPlan, counts, dealt, dominated, mean_slot_us, multisets


def free_jobs() -> list[OperationGraph]:
    """Free jobs of several workers, of various families."""
    cases = [("rack", 106), ("rack", 101), ("server", 7), ("server", 23), ("tiny", 12), ("tiny", 9), ("tiny", 11)]
    jobs = [job for family, seed in cases for job in compile_instance(generate(family, seed)).jobs]
    return [job for job in jobs if job.rule.multiset is None and job.slots > 1]


def gpu_us(job: OperationGraph, row: tuple[int, ...]) -> int:
    times = job.blocks[0].duration_us[job.gpu_types[0]]
    return sum(times[level - 1] for level in row)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_asks_for_the_least_sum_that_the_rule_allows(shape: str) -> None:
    jobs = free_jobs()
    assert len(jobs) > 20
    for job in jobs:
        rows = multisets(job, shape)
        assert rows is not None and len(rows) == job.iterations
        fewest = job.rule.min_contributors
        least = fewest * job.levels + job.slots - fewest
        assert sum(map(sum, rows)) == max(job.rule.min_total, least * job.iterations)
        for row in rows:
            assert len(row) == job.slots
            assert list(row) == sorted(row, reverse=True)
            assert row[fewest - 1] == job.levels and row[-1] >= 1


def test_alternating_has_all_but_the_deepest_at_one_level_in_all_iterations_but_one() -> None:
    several = 0
    for job in free_jobs():
        rows = multisets(job, "alternating") or ()
        uneven = [row for row in rows if len(set(row[job.rule.min_contributors :])) > 1]
        assert len(uneven) <= 1
        several += len(set(rows)) > 1
    assert several


def test_cheap_is_least_gpu_time() -> None:
    smaller = 0
    for job in free_jobs():
        if job.slots > 6:
            continue
        fewest = job.rule.min_contributors
        for row, plain in zip(multisets(job, "cheap") or (), multisets(job) or (), strict=True):
            levels = combinations_with_replacement(range(1, job.levels + 1), job.slots - fewest)
            all_rows = ((job.levels,) * fewest + other for other in levels)
            least = min(gpu_us(job, other) for other in all_rows if sum(other) == sum(row))
            # One worker is between the corners of the hull.
            slack = max(job.blocks[0].duration_us[job.gpu_types[0]])
            assert least <= gpu_us(job, row) <= min(gpu_us(job, plain) + slack, least + slack)
            smaller += gpu_us(job, row) < gpu_us(job, plain)
    assert smaller


def test_flat_exchanges_less_than_the_staircase() -> None:
    operations = compile_instance(generate("rack", 101))
    layout = Layout(operations)
    smaller = 0
    for job in operations.jobs:
        if job.rule.multiset is not None or job.slots < 12:
            continue
        channel = layout.channel(job, range(job.slots))
        assert channel is not None
        flat, plain = ((multisets(job, shape) or ())[0] for shape in ("flat", "staircase"))
        assert sum(exchange_us(job, flat, channel)) <= sum(exchange_us(job, plain, channel))
        smaller += sum(exchange_us(job, flat, channel)) < sum(exchange_us(job, plain, channel))
    assert smaller


def test_shapes_differ_and_begin_with_the_demand_itself() -> None:
    asked = demands(compile_instance(generate("rack", 106)))
    assert asked is not None
    for demand in asked:
        found = shapes(demand)
        assert found[0] is demand
        assert len({other.rows for other in found}) == len(found)
        assert len(found) == 1 or demand.job.rule.multiset is None
    assert any(len(shapes(demand)) == 4 for demand in asked)


@pytest.mark.parametrize("seed", range(20))
def test_mean_gpu_time_of_a_slot_is_that_over_all_orders_under_the_caps(seed: int) -> None:
    draw = random.Random(seed)
    slots, depth = draw.randint(1, 5), draw.randint(1, 4)
    tables = [sorted(draw.sample(range(1, 10_000), depth)) for _ in range(slots)]
    caps = [depth, *(draw.randint(1, depth) for _ in range(slots - 1))]
    draw.shuffle(caps)
    rows = []
    while len(rows) < 3:
        row = tuple(sorted((draw.randint(1, depth) for _ in range(slots)), reverse=True))
        if dominated(row, caps):
            rows.append(row)
    expected = [0.0] * slots
    for row in rows:
        orders = [
            order for order in permutations(row) if all(level <= cap for level, cap in zip(order, caps, strict=True))
        ]
        for order in orders:
            for slot, level in enumerate(order):
                expected[slot] += tables[slot][level - 1] / len(orders) / len(rows)
    found = mean_slot_us(LevelPlan(tuple(rows), fixed=False), caps, tables)
    assert found == pytest.approx([int(time + 1e-6) for time in expected], abs=1)


def test_mean_gpu_time_of_a_slot_whose_levels_are_fixed() -> None:
    plan = LevelPlan(((1, 3), (2, 3)), fixed=True)
    assert mean_slot_us(plan, [2, 3], [(10, 25, 40), (100, 200, 300)]) == [17, 300]


@pytest.mark.parametrize(("family", "number"), [("rack", 106), ("server", 7), ("tiny", 12)])
def test_levels_that_are_dealt_keep_to_counts_and_rule(family: str, number: int) -> None:
    rng = random.Random(number)
    for job in compile_instance(generate(family, number)).jobs:
        shallow = multisets(job, SHAPES[0]) if job.rule.multiset is None else [job.rule.multiset] * job.iterations
        assert shallow is not None
        rows = [rng.sample(list(row), len(row)) for row in shallow]
        held = counts(range(job.slots), rows)
        found = dealt(job, list(held.values())).rows
        assert counts(range(job.slots), found) == held
        if job.rule.multiset is not None:
            assert {tuple(sorted(row)) for row in found} == {tuple(sorted(job.rule.multiset))}
        assert all(sum(level == job.levels for level in row) >= job.rule.min_contributors for row in found)
