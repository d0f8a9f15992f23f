from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from jigsaw_opt.problem.cluster import Channel
from jigsaw_opt.problem.network.contention import (
    Degraded,
    Exclusive,
    FairSharing,
    degradation,
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
