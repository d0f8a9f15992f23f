"""The rules of SJF-BCO by hand: whom FA-FFP and LBSGF give which GPUs, as printed and as meant."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from jigsaw_opt.solvers.allocation.sjf_bco import GpuLedger, Variant, rule_of

ONE = Fraction(1)


def ledger(loads: Sequence[int], *taken: int) -> GpuLedger:
    """Servers of two, two and three GPUs, some of which are taken."""
    return GpuLedger([range(2), range(2, 4), range(4, 7)], loads, frozenset(range(7)).difference(taken))


def chosen(variant: Variant, need: int, at_work: GpuLedger, threshold: int = 9, spread: Fraction = ONE) -> list[int]:
    return list(rule_of(variant, threshold, spread)(need, at_work) or ())


def test_as_printed_small_jobs_spread_and_as_meant_they_pack() -> None:
    at_work = ledger([5, 0, 0, 0, 0, 0, 0], 0)
    assert chosen("literal", 2, at_work) == [1, 2]
    assert chosen("intent", 2, at_work) == [2, 3]
    assert chosen("intent", 1, at_work) == [1]


def test_as_printed_the_least_loaded_gpus_of_all_servers_are_taken() -> None:
    assert chosen("literal", 3, ledger([3, 1, 0, 4, 1, 2, 9], 2)) == [1, 4, 5]


def test_a_packed_job_that_no_server_holds_takes_the_fewest() -> None:
    at_work = ledger([5, 0, 0, 0, 0, 0, 0], 0)
    assert chosen("intent", 5, at_work) == [4, 5, 6, 2, 3]
    assert chosen("intent", 7, at_work) == []


def test_large_jobs_take_the_least_busy_servers_that_have_enough_gpus() -> None:
    at_work = ledger([5, 5, 5, 0, 0, 0, 0], 0, 1, 2)
    # By load a GPU the servers are 2, 1, 0; one with three GPUs is enough for a factor of 1, not for 4/3.
    assert chosen("literal", 3, at_work, threshold=2) == [4, 5, 6]
    assert chosen("literal", 3, at_work, threshold=2, spread=Fraction(4, 3)) == [3, 4, 5]
    assert chosen("intent", 3, at_work, threshold=2, spread=Fraction(4, 3)) == [4, 5, 6]


@pytest.mark.parametrize("variant", ["literal", "intent"])
def test_a_large_job_waits_where_its_servers_are_taken(variant: Variant) -> None:
    # The first two servers come before the last one, which is as busy, and have enough GPUs, of which one is taken.
    at_work = ledger([0, 0, 0, 0, 0, 0, 0], 1)
    assert chosen(variant, 3, at_work, threshold=2) == [0, 2, 3]
    assert chosen(variant, 4, at_work, threshold=2) == []
