"""When a waiting job will start: draws, simulations that go on from a queue, and what a trace tells of one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob, Workload
from jigsaw_opt.scheduling.live.start_prediction import ClusterQueue, PastAnswer, PastJobs, StartPrediction
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from jigsaw_opt.simulation.prediction.predicting import RunTimes, TakenOver, arrivals, lasting, predict_starts
from jigsaw_opt.simulation.prediction.when import past_answers, queue_at, time_in, waiting_job
from tests.refusals import carries, misuse
from tests.simulation.cases import SECOND, cluster, job, random_jobs, setting
from tests.simulation.resumable import CASES, halted

HOUR, DAY = 3600, 86_400
HOUR_US = HOUR * SECOND


def of(user: str | None, gpus: int = 1, **more: object) -> TraceJob:
    return TraceJob("x", 0, "seconds", gpus, user=user, **more)  # type: ignore[arg-type]


def drawn(times: RunTimes, asked: TraceJob, run_us: int = 0, count: int = 4000) -> Counter[int]:
    random = Random(7)
    return Counter(times.draw(asked, run_us, random) for _ in range(count))


# Run times -------------------------------------------------------------------------------------------------


def test_run_times_follow_kaplan_and_meier() -> None:
    """Of 10, 12, (15 and still running), 20, 30: the mass of 15 goes to 20 and 30."""
    ended = [(of("a"), us) for us in (10, 12, 20, 30)] * 5
    times = RunTimes(ended, [(of("a"), 15)] * 5)
    shares = {us: number / 4000 for us, number in drawn(times, of("a")).items()}
    assert shares.keys() == {10, 12, 20, 30}
    assert [shares[us] for us in (10, 12, 20, 30)] == pytest.approx([0.2, 0.2, 0.3, 0.3], abs=0.03)
    assert set(drawn(times, of("a"), run_us=12)) == {20, 30}


def test_run_times_are_of_the_same_user_and_size_where_there_are_enough() -> None:
    ended = [(of("a", 8), 80)] * 5 + [(of("a", 1), 10)] * 5 + [(of("b", 8), 800)] * 5
    times = RunTimes(ended)
    assert set(drawn(times, of("a", 8))) == {80}
    assert set(drawn(times, of("a", 2))) == {10, 80}
    assert set(drawn(times, of("a", 8), run_us=80)) == {800}, "no run of a lasted longer, but one of its size did"
    assert set(drawn(times, of("c", 1))) == {10}
    assert set(drawn(times, of(None, 2))) == {10, 80, 800}


def test_run_times_keep_limits_and_go_beyond_what_was_seen() -> None:
    times = RunTimes([(of("a"), 100)] * 9)
    assert set(drawn(times, of("a", time_limit_us=60))) == {60}
    assert set(drawn(times, of("a", time_limit_us=60), run_us=70)) == {71}
    longer = drawn(times, of("a"), run_us=1000)
    assert min(longer) > 1000
    assert sum(number for us, number in longer.items() if us > 2000) == pytest.approx(2000, abs=150)


def test_arrivals_are_those_of_earlier_days_at_the_same_hour() -> None:
    jobs = [job(f"j{k}", k * DAY / 4, 1 + k, 5) for k in range(12)]
    now_us = 3 * DAY * SECOND
    found = list(arrivals(jobs, now_us, 50, Random(1)))
    assert len(found) == 200 and len({one.name for one in found}) == 200
    assert [one.submit_us for one in found] == [now_us + k * DAY * SECOND // 4 for k in range(200)]
    days = Counter(tuple(one.gpus for one in found[k : k + 4]) for k in range(0, 200, 4))
    assert days.keys() == {(1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12)}
    assert not list(arrivals(jobs[:3], DAY * SECOND // 2, 5, Random(1)))
    assert not list(arrivals([], DAY * SECOND, 5, Random(1)))


# Simulations that go on ------------------------------------------------------------------------------------


def queue_of(simulation: Simulation, remembers: bool) -> ClusterQueue:
    for running in simulation._under_way.running.values():
        running.settle(simulation.now_us)
    trigger, jobs = simulation._trigger, {index: replace(active) for index, active in simulation._active.items()}
    own: dict[str, Any] = {"next_job": simulation._arrivals.submitted, "wake_us": trigger.wake_us}
    if remembers:
        own |= {"memory": simulation._policy.state(), "arrived": tuple(trigger.arrived), "ended": tuple(trigger.ended)}
    return ClusterQueue(simulation.now_us, jobs, tuple(simulation._under_way.shares), **own)


@pytest.mark.parametrize(
    ("policy", "remembers"),
    [
        *product(("fifo", "backfill:default_limit=4", "srtf", "las", "priority", "sjf_bco"), (True, False)),
        ("multifactor:default_limit=4", True),
        ("backfill:kind=conservative:default_limit=4", True),  # its reservations are what it remembers
    ],
)
def test_a_simulation_goes_on_from_a_queue_as_if_it_had_gone_on(policy: str, remembers: bool) -> None:
    for seed in range(4):
        given = setting(*random_jobs(seed, 40), round_us=400 * SECOND).under(policy)
        whole = Simulation(given)
        whole.run(until_us=1210 * SECOND)
        queue, so_far = queue_of(whole, remembers), {one.index for one in whole.outcome.jobs}
        jobs = dict(enumerate(given.workload.jobs))
        then = TakenOver(given, queue, {index: one.done for index, one in queue.jobs.items()})
        assert queue.jobs.keys() == jobs.keys() - so_far - set(range(queue.next_job, 40))
        whole.run()
        finish(then, 40 - len(so_far))
        expected = {one.index: one.finish_us for one in whole.outcome.jobs if one.index not in so_far}
        assert {one.index: one.finish_us for one in then.outcome.jobs} == expected


@pytest.mark.parametrize("text", {text.partition(":")[0]: text for text in CASES}.values())
def test_every_policy_takes_over_jobs_that_run(text: str) -> None:
    where = CASES[text]()
    before = halted(text, where, 0.6)
    queue = queue_of(before, False)
    running = {index for index, one in queue.jobs.items() if one.share is not None}
    assert running
    then = TakenOver(where.under(text), queue, {index: one.done for index, one in queue.jobs.items()})
    finish(then, len(where.workload.jobs) - before.ended)
    assert {one.index for one in then.outcome.jobs} >= running


def finish(simulation: Simulation, jobs: int) -> None:
    simulation.run(lambda: simulation.ended == jobs)


def one_server(
    past: PastJobs | None, *present: tuple[TraceJob, int | None], now_s: int = HOUR
) -> tuple[Setting, ClusterQueue]:
    """A server of 4 GPUs under fifo, and jobs with the seconds for which they have run."""
    recorded = [
        replace(one, iterations=None, start_us=None if run_s is None else (now_s - run_s) * SECOND)
        for one, run_s in present
    ]
    ended = (job("old", 0, 1, 1),) if past is None else past.ended
    jobs = tuple(replace(one, start_us=0, end_us=one.duration_us) for one in ended)
    workload = Workload("w", jobs, unfinished=tuple(recorded))
    given = replace(setting(job("x", 0, 1, 1), cluster=cluster(1, 4), round_us=0), workload=workload).under("fifo")
    return given, queue_at(given, now_s * SECOND).queue


def test_a_job_starts_when_the_one_before_ends() -> None:
    """One job has held all GPUs for half an hour; half of those that last longer take one hour, half two."""
    past = PastJobs(tuple(job(f"p{k}", 0, 4, seconds) for k, seconds in enumerate([60, HOUR, 2 * HOUR] * 6)), False)
    given, queue = one_server(past, (job("runs", 0, 4, 1), HOUR // 2), (job("waits", 0, 4, 1), None), now_s=9 * HOUR)
    found = predict_starts(given, queue, [1], past, samples=399, seed=3)[0]
    starts = Counter((start_us - queue.now_us) // (HOUR_US // 2) for start_us in found.starts_us)
    assert starts.keys() == {1, 3}
    assert starts[1] == pytest.approx(199.5, abs=30)
    assert found.interval_us(0.9) == (queue.now_us + HOUR_US // 2, queue.now_us + 3 * HOUR_US // 2)
    assert str(found).startswith(
        "job waits starts in 30 min to 1.5 h with a probability of 50 %, and in 30 min to 1.5 h"
    )
    assert predict_starts(given, queue, [1], past, samples=399, seed=3) == [found]
    assert predict_starts(given, queue, [1], past, samples=399, seed=4) != [found]


def test_later_arrivals_delay_a_job_that_they_may_overtake() -> None:
    """Every hour comes a job of one GPU for 90 minutes: under srtf the wide, long one waits for ever."""
    jobs = tuple(job(f"p{k}", k * HOUR, 1, 3 * HOUR // 2) for k in range(49))
    wide = tuple(job(f"w{k}", 0, 4, 10 * HOUR) for k in range(6))
    past = PastJobs((*jobs, *wide))
    given, queue = one_server(past, (job("runs", 0, 1, 1), 600), (job("wide", 0, 4, 1), None), now_s=49 * HOUR)
    with_them = predict_starts(given.under("srtf"), queue, [1], past, samples=1)[0]
    without = predict_starts(given.under("srtf"), queue, [1], replace(past, arrive=False), samples=5)[0]
    assert max(without.starts_us) <= queue.now_us + 10 * HOUR_US
    assert not with_them.starts_us or min(with_them.starts_us) > max(without.starts_us)


def test_intervals_are_ranks_of_the_starts() -> None:
    found = StartPrediction("x", 0, tuple(range(1, 100)), 99)
    assert (found.interval_us(0.5), found.interval_us(0.9), found.median_us) == ((25, 75), (5, 95), 50)
    assert StartPrediction("x", 0, (7,), 1).interval_us(0.9) == (7, 7)
    late = StartPrediction("x", 0, tuple(range(1, 60)), 99)
    assert (late.interval_us(0.5), late.interval_us(0.9)) == ((25, None), (5, None))
    assert "or later" in str(late)
    assert late.plain()["not_started"] == 40
    never = StartPrediction("x", 0, (), 9)
    assert never.median_us is None and "or never" in str(never)


def test_answers_of_the_past_correct_intervals() -> None:
    """All jobs waited twice as long as was foretold; ten minutes more or less are nothing."""
    hours = [StartPrediction("x", 0, tuple(k * hour * HOUR_US for k in range(1, 20)), 19) for hour in range(1, 31)]
    right = [PastAnswer(one, 10 * wait_h * HOUR_US) for wait_h, one in enumerate(hours, 1)]
    late = [PastAnswer(one, 2 * answer.wait_us) for one, answer in zip(hours, right, strict=True)]
    asked = hours[9]
    assert replace(asked, answers=tuple(late[:19])).interval_us(0.9) == asked.simulated_us(0.9)
    corrected = replace(asked, answers=tuple(late))
    assert [at_us / HOUR_US for at_us in corrected.interval_us(0.9) if at_us] == pytest.approx([200, 200], rel=0.02)
    assert corrected.median_us == pytest.approx(200 * HOUR_US, rel=0.02)
    assert carries(str(corrected), "corrected", "30 answers")
    never = [PastAnswer(StartPrediction("x", 0, (), 19), HOUR_US)] * 30
    assert replace(asked, answers=tuple(never)).interval_us(0.9)[0] == 0


def slow_cluster(days: float) -> Setting:
    """Every three hours two jobs of all GPUs come; the second begins an hour after the end of the first."""
    jobs = []
    for k in range(int(days * 8)):
        jobs += [recorded(f"a{k}", 3 * k, 3 * k, 3 * k + 1), recorded(f"b{k}", 3 * k, 3 * k + 2, 3 * k + 3)]
    workload = Workload("w", tuple(jobs))
    return replace(setting(job("x", 0, 1, 1), cluster=cluster(1, 4), round_us=0), workload=workload).under("fifo")


def test_the_past_tells_that_a_cluster_is_slower_than_its_simulation() -> None:
    given, at_us = slow_cluster(6), round(120.5 * HOUR_US)
    found = queue_at(given, at_us)
    (alone,) = predict_starts(given, found.queue, [1], found.past, samples=19)
    assert alone.interval_us(0.9) == (at_us + HOUR_US // 2,) * 2, "when the first ends"
    answers, silent = past_answers(given, at_us, moments=40)
    assert len({one.prediction.job for one in answers}) == len(answers) > 20
    assert silent == 0
    assert all(0 < one.wait_us <= 2 * HOUR_US for one in answers)
    low_us, high_us = replace(alone, answers=tuple(answers)).interval_us(0.9)
    assert low_us <= 122 * HOUR_US <= high_us, "when the second of the file begins"


def test_answers_of_the_past_tell_nothing_of_the_future() -> None:
    known, *how = slow_cluster(1.25), 30 * HOUR_US, True, 6, 4
    later = replace(known, workload=slow_cluster(2).workload)
    answers, silent = past_answers(known, *how)
    assert answers and past_answers(later, *how) == (answers, silent)
    assert past_answers(known, HOUR_US) == ([], 0), "no job has waited by then"
    assert past_answers(known, 2 * HOUR_US + 1, moments=3)[1] == 2, "no job had ended in the first hour"


def test_what_cannot_be_predicted() -> None:
    given, queue = one_server(None, (job("waits", 0, 4, 1), None))
    for past, samples, expected in ((None, 0, "out-of-range samples"), (PastJobs(()), 1, "empty")):
        with misuse(expected):
            predict_starts(given, queue, [0], past, samples=samples)


# Queues of traces ------------------------------------------------------------------------------------------


def recorded(name: str, submit_h: float, start_h: float, end_h: float, gpus: int = 4) -> TraceJob:
    times = (round(at * HOUR_US) for at in (submit_h, start_h, end_h))
    submit_us, start_us, end_us = times
    return replace(TraceJob.lasting(name, submit_us, gpus, end_us - start_us), start_us=start_us, end_us=end_us)


def test_a_past_moment_of_a_trace() -> None:
    times = {"a": (0, 0, 1), "b": (0.5, 1, 3), "c": (0.6, 1.5, 4), "d": (1.9, 3, 5), "e": (3, 5, 6)}
    jobs = tuple(recorded(name, *of) for name, of in times.items())
    given = replace(setting(job("x", 0, 1, 1)), workload=Workload("w", jobs)).under("fifo")
    found = queue_at(given, 2 * HOUR_US)
    assert [one.name for one in found.past.ended] == ["a"]
    queued = {
        one.job.name: (one.run_us / HOUR_US, one.starts, one.share is not None) for one in found.queue.jobs.values()
    }
    assert queued == {"b": (1.0, 1, True), "c": (0.5, 1, True), "d": (0.0, 0, False)}
    assert all(one.job.start_us is None and one.job.end_us is None for one in found.queue.jobs.values())
    assert waiting_job(given.workload, found.queue, "d") == 2
    for name, why in {"b": "runs", "a": "ended", "e": "later"}.items():
        with misuse("contradiction job", naming=[f"'{name}'", why]):
            waiting_job(given.workload, found.queue, name)
    silent = Workload("w", tuple(replace(one, end_us=None) for one in jobs))
    for change, expected in (({"cluster": cluster(1, 4)}, "does-not-fit"), ({"workload": silent}, "missing-field")):
        with misuse(expected):
            queue_at(replace(given, **change), 2 * HOUR_US)


def test_jobs_that_run_are_where_their_nodes_say() -> None:
    jobs = (
        replace(recorded("a", 0, 0, 9, 2), nodes=("s1",)),
        replace(recorded("b", 0, 0, 9, 4), nodes=("s1", "s0")),
        replace(recorded("c", 0, 0, 9, 1), nodes=("elsewhere",)),
        replace(recorded("d", 0, 0, 9, 1), nodes=("s1",)),
    )
    given = replace(setting(job("x", 0, 1, 1)), workload=Workload("w", jobs)).under("fifo")
    queue = queue_at(given, 2 * HOUR_US).queue
    placed = {one.job.name: one.share.gpus for one in queue.jobs.values() if one.share is not None}
    assert {gpu // 4 for gpu in placed["a"]} == {1} and {gpu // 4 for gpu in placed["b"]} == {0, 1}
    assert len({gpu for gpus in placed.values() for gpu in gpus}) == 8, "d finds no room on s1, and is elsewhere"


def test_a_job_that_should_have_started_long_ago_is_evidence_against_the_policy() -> None:
    def warning(waits: TraceJob, other_end_h: int = 1) -> str:
        jobs = (recorded("p", 0, 0, 1), recorded("a", 0, 0, other_end_h, 8), waits)
        given = replace(setting(job("x", 0, 1, 1)), workload=Workload("w", jobs)).under("fifo")
        found = queue_at(given, 3 * HOUR_US)
        number = waiting_job(given.workload, found.queue, "b")
        (prediction,) = predict_starts(given, found.queue, [number], found.past)
        assert prediction.warning in str(prediction) and prediction.plain()["warnings"] == [prediction.warning] * bool(
            prediction.warning
        )
        return prediction.warning

    waits = recorded("b", 0, 9, 10, 8)
    assert carries(warning(waits), "job b", "3 h", "do not trust")
    assert warning(waits, other_end_h=8) == "", "another job holds its GPUs"
    assert warning(replace(waits, submit_us=3 * HOUR_US - 1)) == "", "it has waited no longer than a round"
    assert carries(warning(replace(waits, held_by="begin")), "held by begin")


def test_times_of_a_trace() -> None:
    jobs = (recorded("a", 0, 0, 1),)
    plain = Workload("w", jobs, unfinished=(job("b", 2 * HOUR, 1, 1),))
    assert (time_in(plain, None), time_in(plain, "1.5")) == (2 * HOUR_US, 3 * HOUR_US // 2)
    dated = replace(plain, first_us=1_769_846_400_000_000)
    assert time_in(dated, "2026-01-31 09:00") == HOUR_US
    for workload, text, why in (
        (plain, "2026-01-31 09:00", "has no dates"),
        (dated, "2026-01-31T09:00Z", "have no zone"),
        (replace(dated, zoned=True), "2026-01-31T09:00", "have a zone"),
        (plain, "soon", "not 'soon'"),
        (plain, "nan", "not 'nan'"),
        (plain, "1e300", "not '1e300'"),
        (plain, "1e9", "at most"),
    ):
        with pytest.raises(UsageError, match=why):
            time_in(workload, text)
    assert lasting(jobs[0], 1500).duration_us == 1500
