from dataclasses import replace
from fractions import Fraction

import pytest

from jigsaw_opt.formulations.sjf_bco import (
    Batch,
    BatchNetwork,
    BatchSchedule,
    ExchangeChain,
    RingJob,
    build,
    completion,
    conflict_free,
    estimate,
    iteration_us,
    overestimate,
    sharing,
    speed,
    step,
)
from jigsaw_opt.problem.network.contention import Degraded
from jigsaw_opt.solvers.allocation.sjf_bco import choose

NETWORK = BatchNetwork(8 * 10**9, 10**9, 4 * 10**9, Degraded(Fraction(1, 2), Fraction(1)), Fraction(1000))
JOB = RingJob("j", workers=4, iterations=30, gradient=10**7, samples=5, forward_us=2000, backward_us=20_000)
BATCH = Batch((2, 2, 4), (JOB,) * 3, NETWORK, 10**6, 100)


@pytest.mark.parametrize(
    ("servers", "shared", "exchange_us"),
    [
        # (m/w)(w-1) is 7.5 MB: twice over the bandwidth, once over the reduction speed of 4 GB/s (1875 us).
        (1, 0, 2 * 7_500_000 / 8_000 + 1_875),
        (2, 1, 2 * 7_500_000 / 1_000 + 1_875),
        (2, 3, 2 * 7_500_000 / 1_000 * 4 + 1_875),
        (3, 2, 2 * 7_500_000 / 1_000 * 2.5 + 1_875),
    ],
)
def test_the_time_of_an_iteration_is_formula_8(servers: int, shared: int, exchange_us: float) -> None:
    assert iteration_us(NETWORK, JOB, servers, shared) == exchange_us + 1000 * servers + 2000 * 5 + 20_000


def test_one_worker_exchanges_nothing() -> None:
    assert iteration_us(NETWORK, replace(JOB, workers=1), 1, 0) == 1000 + 10_000 + 20_000


def test_fewer_senders_than_one_do_not_raise_the_bandwidth() -> None:
    portion = replace(NETWORK, contention=Degraded(Fraction(1, 2), Fraction(1, 4)))
    assert iteration_us(portion, JOB, 2, 1) == iteration_us(NETWORK, JOB, 2, 1)
    assert iteration_us(portion, JOB, 2, 8) == iteration_us(NETWORK, JOB, 2, 2)


def test_speed_is_in_whole_iterations() -> None:
    # 1 server: 34.75 ms an iteration, 28.8 in a second.
    assert speed(BATCH, JOB, 1, 0) == 28


def test_sharing_counts_the_jobs_on_several_servers_that_meet() -> None:
    spreads = [(1, 1, 0), (1, 0, 1), (0, 1, 1), (2, 0, 0), (0, 0, 2)]
    # On each server two of the first three meet; the last two are on one server each and count nowhere.
    assert sharing(spreads) == (2, 2, 2, 0, 0)


def test_sharing_is_that_of_the_fullest_server() -> None:
    assert sharing([(1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1), (0, 0, 1, 1)]) == (3, 3, 3, 2)


def test_a_job_alone_on_several_servers_shares_with_itself() -> None:
    assert sharing([(2, 2)]) == (1,)


def test_jobs_speed_up_when_those_beside_them_end() -> None:
    job = replace(JOB, workers=2, gradient=4 * 10**8, samples=0, backward_us=0)
    network = replace(NETWORK, overhead_us=Fraction(0))
    batch = Batch((2, 2), (replace(job, iterations=2), replace(job, iterations=6)), network, 10**6, 100)
    # 0.4 s alone and 0.05 s of reduction: 2 iterations a slot; together 2.5 times 0.4 s and 0.05 s: none.
    assert completion(batch, BatchSchedule((0, 1), ((1, 1), (1, 1)))) == (1, 4)
    assert completion(batch, BatchSchedule((0, 0), ((1, 1), (1, 1)))) is None
    slower = replace(batch, slot_us=1_050_000)
    # One iteration a slot together until slot 2; then the second goes on with two a slot.
    assert completion(slower, BatchSchedule((0, 0), ((1, 1), (1, 1)))) == (2, 4)


def test_a_schedule_beyond_the_horizon_has_no_ends() -> None:
    schedule = BatchSchedule((0, 0, 2), ((2, 2, 0), (0, 0, 4), (0, 0, 4)))
    ends = completion(BATCH, schedule)
    assert ends is not None
    assert completion(replace(BATCH, horizon=max(ends)), schedule) == ends
    assert completion(replace(BATCH, horizon=max(ends) - 1), schedule) is None


def test_estimates_are_the_slowest_case_and_their_divisor_the_fastest() -> None:
    # f(1/2, 4) = 5.5 on four servers: 82.5 ms + 1.875 + 4 + 30; on one: 1.875 + 1.875 + 1 + 30.
    assert estimate(BATCH, JOB) == 4  # 30 * 118.375 ms
    assert overestimate(BATCH) == Fraction(4_000_000) / (30 * Fraction(34_750))


def test_the_program_over_schedules_has_the_rows_of_the_paper() -> None:
    ends = [(4, 9), (6, 6), (5, 8)]
    program = build(ends).program.program()
    assert program.integer.sum() == 2 * 3
    # (10) and (11) once a job, (12) once a schedule between the two jobs.
    assert len(program.row_lower) == 2 + 2 + 3


@pytest.mark.parametrize("ends", [[(4, 9), (6, 6), (5, 8)], [(3, 3, 3)], [(1, 2), (2, 1), (3, 1)]])
def test_the_program_chooses_the_least_makespan(ends: list[tuple[int, ...]]) -> None:
    assert max(ends[choose(ends)]) == min(map(max, ends))


def test_a_chain_computes_and_exchanges_in_turn() -> None:
    chain = ExchangeChain(2, 1, 2, frozenset({0}))
    assert [chain.exchanges(done) for done in range(7)] == [False, True, True, False, True, True, False]
    assert [chain.mid_exchange(done) for done in range(6)] == [False, False, True, False, False, True]


def test_a_step_moves_all_that_compute_and_those_that_send() -> None:
    chains = [ExchangeChain(1, 1, 1, frozenset({0}))] * 4
    assert step(chains, (0, 1, 1, 2), [1]) == (1, 2, 1, 2)


def test_exchanges_conflict_where_they_share_a_link() -> None:
    chains = [ExchangeChain(1, 0, 1, frozenset(links)) for links in ({0}, {0, 1}, {1}, ())]
    assert conflict_free(chains, [0, 2, 3])
    assert not conflict_free(chains, [0, 1])
