import csv
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.contention import (
    Degraded,
    ExchangeSample,
    Exclusive,
    FairSharing,
    degradation,
    fit_degradation,
)

CHANNELS = st.builds(
    lambda links, rate: Channel(tuple(sorted(links)), rate, 0),
    st.sets(st.integers(0, 3), max_size=4),
    st.integers(1, 9),
)


def uses(*links: int, rate: int = 100) -> Channel:
    return Channel(links, rate, 0)


def test_fair_rates_fill_the_links_in_turn() -> None:
    # Link 1 stops its two users at 2; what the second of them leaves on link 0 goes to the first transfer.
    assert FairSharing().rates([uses(0), uses(0, 1), uses(1)], [10, 4]) == (8, 2, 2)


def test_a_transfer_that_needs_less_leaves_the_rest_to_others() -> None:
    assert FairSharing().rates([uses(0, rate=1), uses(0), uses(0)], [10]) == (1, Fraction(9, 2), Fraction(9, 2))


def test_a_transfer_without_links_keeps_its_rate() -> None:
    for model in (Exclusive(), FairSharing(), Degraded(Fraction(1))):
        assert model.rates([uses(rate=7), uses(0, rate=5)], [5]) == (7, 5)


@given(st.lists(CHANNELS, max_size=6), st.lists(st.integers(1, 9), min_size=4, max_size=4))
@settings(max_examples=200)
def test_fair_rates_are_max_min_fair(channels: list[Channel], bandwidths: list[int]) -> None:
    rates = FairSharing().rates(channels, bandwidths)
    carried = [sum(r for r, c in zip(rates, channels) if link in c.links) for link in range(4)]
    assert all(total <= bandwidth for total, bandwidth in zip(carried, bandwidths))
    for rate, channel in zip(rates, channels):
        full = [link for link in channel.links if carried[link] == bandwidths[link]]
        largest_there = [max(r for r, c in zip(rates, channels) if link in c.links) for link in full]
        assert rate <= channel.rate
        assert rate == channel.rate or rate in largest_there


def test_exclusive_transfers_wait_for_those_that_hold_a_link() -> None:
    # The third shares link 1 with the second, which does not run: only those that run hold links.
    assert Exclusive().rates([uses(0), uses(0, 1), uses(1)], [100, 100]) == (100, 0, 100)


def test_degradation_of_the_paper() -> None:
    assert [degradation(Fraction(1, 2), k) for k in (1, 2, 3)] == [1, Fraction(5, 2), 4]
    assert degradation(Fraction(0), 4) == 4


def test_degradation_is_never_below_one() -> None:
    assert degradation(Fraction(1, 2), Fraction(3, 10)) == 1


def test_degraded_rates_follow_the_fullest_link() -> None:
    model = Degraded(Fraction(1, 2))
    assert model.rates([uses(0), uses(0, 1), uses(1), uses(1)], [100, 100]) == (40, 25, 25, 25)


def test_only_the_sending_portion_of_users_counts() -> None:
    model = Degraded(Fraction(0), share=Fraction(1, 2))
    assert model.rates([uses(0)] * 4, [100]) == (50,) * 4
    assert model.rates([uses(0)], [100]) == (100,)


def samples(times: dict[int, int], size: int = 10) -> list[ExchangeSample]:
    return [ExchangeSample(k, size, Fraction(time)) for k, time in times.items()]


def test_a_fit_finds_the_loss_that_made_the_times() -> None:
    alpha = Fraction(3, 4)
    fit = fit_degradation([ExchangeSample(k, s, s * degradation(alpha, k)) for s in (10, 20) for k in range(1, 6)])
    assert (fit.model.alpha, fit.model.uncontended) == (alpha, 0)
    assert set(fit.residuals) == {0}


def test_a_fit_below_fair_sharing_is_a_part_that_is_not_slowed_down() -> None:
    fit = fit_degradation(samples({1: 100, 2: 190, 3: 280}))
    assert (fit.model.alpha, fit.model.uncontended) == (0, Fraction(1, 10))
    assert [fit.model.slowdown(k) for k in (1, 2, 3)] == [1, Fraction(19, 10), Fraction(28, 10)]


def test_the_fit_is_the_least_of_the_squares() -> None:
    measured = samples({1: 100, 2: 230, 3: 310, 4: 390})

    def error(slope: Fraction) -> Fraction:
        return sum(((1 + slope * (s.sharing - 1)) * 100 / s.time_us - 1) ** 2 for s in measured[1:])

    fit = fit_degradation(measured)
    assert sum(r * r for r in fit.residuals) == error(fit.slope)
    assert error(fit.slope) < min(error(fit.slope + Fraction(step, 1000)) for step in (-1, 1))


@pytest.mark.parametrize(("times", "message"), [({2: 5}, "without a time alone: \\[10\\]"), ({1: 5}, "no sample")])
def test_a_fit_needs_times_alone_and_times_together(times: dict[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_degradation(samples(times))


def test_the_mean_of_measured_exchanges_is_fair_sharing_within_a_tenth(shared_data: Path) -> None:
    path = shared_data / "cluster/NO_LICENCE_STATED/hkbu_network_contention/results_avg.csv"
    with path.open() as file:
        rows = [(int(r["job_num"]), int(r["msg_size"]), Fraction(r["avg_latency"])) for r in csv.DictReader(file)]
    fit = fit_degradation([ExchangeSample(*row) for row in rows if row[1] > 20_000_000])
    assert len(fit.samples) == 30
    assert Fraction(9, 10) < fit.slope < 1
    assert fit.model.alpha == 0
