"""What levels cost and gain: the rule that tells whether they pay, against all levels and against its theory."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from random import Random

import pytest

from jigsaw_opt.executor.level_schedule import LevelSchedule
from jigsaw_opt.problem.efficiency import Efficiency, Payoff, payoffs


def drawn(seed: int) -> tuple[Efficiency, list[int], int]:
    draw = Random(seed)
    depth, workers = draw.randint(1, 4), draw.randint(2, 5)
    noise = tuple(draw.randint(0, 40_000) for _ in range(depth))
    times = [draw.randint(1, 50)]
    for _ in range(depth - 1):
        times.append(times[-1] + draw.randint(0, 50))
    return Efficiency(noise, tuple(draw.randint(1, 1000) for _ in range(depth))), times, workers


@pytest.mark.parametrize("seed", range(20))
def test_the_last_way_takes_least_time_for_progress_of_all_levels(seed: int) -> None:
    efficiency, times, workers = drawn(seed)
    every = combinations_with_replacement(range(1, len(times) + 1), workers)
    costs = {
        levels: Fraction(sum(times[level - 1] for level in levels), efficiency.progress(levels))
        for levels in every
        if levels[-1] == len(times)
    }
    found = [way for way in payoffs(efficiency, times, workers) if not way.frozen]
    assert min(costs[tuple(sorted(way.levels))] for way in found) == min(costs.values())
    for way in found:
        assert way.time == Fraction(sum(times[level - 1] for level in way.levels), workers * times[-1])
        assert way.progress == Fraction(efficiency.progress(way.levels), efficiency.most)
        # The progress of a batch is concave in its size, so a smaller one never makes less than its share.
        assert way.smaller_batch >= way.time - Fraction(1, 10**5)


@pytest.mark.parametrize("seed", range(20))
def test_with_equal_noise_and_weights_like_times_a_smaller_batch_is_better(seed: int) -> None:
    _, times, workers = drawn(seed)
    backward = [times[0], *(high - low for low, high in pairwise(times))]
    noise = (1000 + 700 * seed,) * len(times)
    with_forward = [sum(backward) // 2 + time for time in times]
    for way in payoffs(Efficiency(noise, tuple(backward)), with_forward, workers)[1:]:
        assert way.frozen or way.progress <= way.smaller_batch + Fraction(1, 10**5)


def test_with_nothing_but_noise_two_levels_pay_where_the_weight_of_the_output_exceeds_its_time() -> None:
    endless = 10**9
    for weight, word in ((34, "pays"), (32, "does not pay: fewer iterations at full depth make more progress")):
        found = payoffs(Efficiency((endless, endless), (weight, 100 - weight)), (33, 100), 4)
        assert [way.verdict for way in found if way.levels == (1, 1, 2, 2)] == [word]


@pytest.mark.parametrize("seed", range(20))
def test_a_smaller_batch_does_not_save_what_is_fixed(seed: int) -> None:
    efficiency, times, workers = drawn(seed)
    fixed = Fraction(seed, 19)
    alike, found = payoffs(efficiency, times, workers), payoffs(efficiency, times, workers, fixed)
    assert payoffs(efficiency, times, workers, Fraction(0)) == alike
    for before, way in zip(alike, found, strict=True):
        assert (way.levels, way.time, way.progress) == (before.levels, before.time, before.progress)
        if way.time == 1:
            assert way.smaller_batch == 1
        elif way.time <= fixed:
            assert way.smaller_batch == 0, "no batch is so small"
        else:
            samples = (way.time - fixed) / (1 - fixed)
            assert fixed + (1 - fixed) * samples == way.time
            made = efficiency.progress([len(times)] * workers, samples)
            assert way.smaller_batch == Fraction(made, efficiency.most) <= before.smaller_batch


def test_fixed_costs_turn_the_verdict() -> None:
    efficiency = Efficiency((2000, 2000), (1, 1))
    verdicts = [
        {way.levels: way.verdict for way in payoffs(efficiency, (60, 100), 2, fixed)}[1, 2]
        for fixed in (None, Fraction(3, 5))
    ]
    assert verdicts == ["does not pay: a smaller batch at full depth makes more progress", "pays"]


def test_the_verdict_names_what_pays_more() -> None:
    def way(time: int, progress: int, smaller: int) -> Payoff:
        return Payoff((1, 1, 2), Fraction(time, 10), Fraction(progress, 10), Fraction(smaller, 10))

    assert way(10, 10, 10).verdict == "full depth"
    assert way(5, 5, 6).verdict == "does not pay: fewer iterations at full depth make more progress"
    assert way(5, 6, 6).verdict == "does not pay: a smaller batch at full depth makes more progress"
    assert way(5, 7, 6).verdict == "pays"
    assert way(5, 7, 6).cells == ("1x2 2x1", "50.0%", "70.0%", "60.0%", "0.71", "pays")
    frozen = Payoff((4, 3, 2, 1), Fraction(1, 2), Fraction(4, 5), Fraction(0), frozen=True)
    assert frozen.cells == ("frozen in turn from level 4", "50.0%", "80.0%", "0.0%", "0.62", "pays")
    *_, idle = payoffs(Efficiency((0, 10**9), (0, 1)), (1, 2), 2)
    assert idle.cells[2:5] == ("0.0%", "50.0%", "inf"), "only what is frozen had a gradient"


@pytest.mark.parametrize("seed", range(20))
def test_freezing_is_what_the_schedule_does_from_now_on(seed: int) -> None:
    efficiency, times, workers = drawn(seed)
    frozen = [way for way in payoffs(efficiency, times, workers) if way.frozen]
    depth = len(times)
    if depth == 1:
        assert not frozen, "the last part is never frozen"
        return
    (way,) = frozen
    count = 5 * (depth - 1)  # so that each level has equally many
    schedule = LevelSchedule(depth, workers, "full", freeze_from=0, iterations=count)
    rows = [schedule.levels(turn) for turn in range(count)]
    assert way.levels == tuple(dict.fromkeys(row[0] for row in rows))
    assert way.time == Fraction(sum(times[level - 1] for row in rows for level in row), count * workers * times[-1])
    # What still trains has gradients of all workers, so its progress is its weight.
    trained = sum(sum(efficiency.weight[: row[0]]) for row in rows)
    assert way.progress == Fraction(trained, count * sum(efficiency.weight))
