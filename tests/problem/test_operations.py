from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from jigsaw_opt.problem import (
    Cluster,
    FreeDepth,
    Instance,
    Job,
    Model,
    Segment,
    Server,
    StaircaseDepth,
    compile_instance,
)
from jigsaw_opt.problem.compiled.operations import OperationGraph
from jigsaw_opt.problem.costs import ceil_div, staircase, transfer_us

SEGMENTS = (
    Segment("stem", {"v": 10, "w": 5}, {"v": 20, "w": 9}, 100, 7),
    Segment("body", {"v": 30, "w": 6}, {"v": 60}, 50, 3),
    Segment("head", {"v": 1, "w": 1}, {"v": 2, "w": 2}, 25, 4),
)


def graph(job: Job, model: Model | None = None) -> OperationGraph:
    cluster = Cluster((Server("s", "v", 4, 10**9, 10**9),))
    return compile_instance(Instance("i", cluster, {"m": model or Model(SEGMENTS)}, (job,))).jobs[0]


def test_durations_buckets_and_memory_by_level() -> None:
    operation = graph(Job("j", "m", 2, 1))
    assert operation.gpu_types == ("v",)
    assert operation.blocks[0].duration_us == {"v": (43, 103, 123)}
    assert [t.payload_bytes for t in operation.transfers] == [25, 50, 100]
    assert operation.state_bytes == 4 * 175
    assert operation.activation_bytes == (4 + 7, 7 + 7, 14)


def test_levels_of_ones_choice_join_segments_in_one_bucket() -> None:
    operation = graph(Job("j", "m", 2, 1), Model(SEGMENTS, levels=(2, 3), state_factor=1))
    assert operation.blocks[0].duration_us["v"] == (103, 123)
    assert [t.payload_bytes for t in operation.transfers] == [75, 100]
    assert operation.state_bytes == 175


def test_a_lone_worker_exchanges_nothing() -> None:
    operation = graph(Job("j", "m", 1, 3))
    assert operation.transfers == ()
    assert len(operation.blocks) == 1


def test_the_staircase_is_the_rounded_up_even_one() -> None:
    assert staircase(3, 2) == (2, 3)
    assert staircase(4, 4) == (1, 2, 3, 4)
    assert staircase(2, 5) == (1, 1, 2, 2, 2)
    assert graph(Job("j", "m", 2, 5, depth=StaircaseDepth())).rule.min_total == 25


def test_free_rule_in_numbers() -> None:
    assert graph(Job("j", "m", 2, 5, depth=FreeDepth())).rule.min_total == 23  # 3/4 of 30, rounded up
    rule = graph(Job("j", "m", 2, 5, depth=FreeDepth(9, "1/2", 3))).rule
    assert (rule.multiset, rule.min_contributors, rule.min_total, rule.balance) == (None, 2, 15, 3)


def test_full_contributors_give_the_ring_all_reduce() -> None:
    assert transfer_us(4_000_000, 2, 2, 10_000_000_000, 0) == 400
    assert transfer_us(0, 3, 4, 10, 7) == 35


@given(st.integers(0, 2**53), st.integers(1, 64), st.integers(1, 64), st.integers(1, 2**53), st.integers(0, 10**6))
def test_transfers_are_exact(payload: int, c: int, w: int, rate: int, latency: int) -> None:
    exact = Fraction(payload * 10**6, rate) * (Fraction(c - 1, c) + Fraction(w - 1, w))
    moved = transfer_us(payload, c, w, rate, latency) - (c + w - 2) * latency
    assert exact <= moved < exact + 1


@given(st.integers(-(2**60), 2**60), st.integers(1, 2**60))
def test_ceil_div_is_exact(numerator: int, denominator: int) -> None:
    assert (
        (ceil_div(numerator, denominator) - 1) * denominator
        < numerator
        <= ceil_div(numerator, denominator) * denominator
    )
