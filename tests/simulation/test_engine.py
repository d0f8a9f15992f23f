"""The engine against figures worked out by hand and exact replays; who breaks a rule is found out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import UNITS, Speed, rate_of
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.scheduling.policy import ClusterSetting, JobState, Observation
from jigsaw_opt.scheduling.policy_at_work import InvariantError
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.running import check_progress
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.refusals import fails
from tests.simulation.cases import SECOND, Scripted, Shared, Stepped, finish_s, job, random_jobs, run, setting


def test_a_job_starts_at_the_next_round_and_ends_at_its_microsecond() -> None:
    made = setting(TraceJob("a", 5_000_001, "seconds", 2, 100), restart_s=30)
    outcome = run(made, FIFO)
    assert finish_s(outcome) == [60 + 30 + 100]
    assert outcome.jobs[0].start_us == 60 * SECOND
    assert outcome.jobs[0].gpu_us == 2 * 130 * SECOND
    assert [record.time_us for record in outcome.rounds] == [60 * SECOND]


def test_rounds_in_which_nothing_happens_are_left_out() -> None:
    outcome = run(setting(job("a", 0, 1, 10**6)), FIFO)
    assert len(outcome.rounds) == 1


def test_work_survives_preemption_and_restarts_are_paid_for() -> None:
    # b arrives at 60 s with less left than a, which then has 40 s of its 70 s (30 s went into its start) left.
    made = setting(job("a", 0, 8, 70), job("b", 60, 8, 20), restart_s=30)
    outcome = run(made, SRTF, hysteresis="0")
    assert finish_s(outcome) == [120 + 30 + 40, 60 + 30 + 20]
    assert [record.restarts for record in outcome.jobs] == [1, 0]
    assert [(stint.job, stint.start_us // SECOND, stint.end_us // SECOND) for stint in outcome.stints] == [
        (0, 0, 60),
        (1, 60, 110),
        (0, 120, 190),
    ]


class _Crowded:
    def factors(self, placements: Sequence[tuple[int, ...]], dead: frozenset[int] = frozenset()) -> list[float]:
        return [float(len(placements))] * len(placements)


def test_contention_stretches_exchanges_and_ends_with_the_other_job() -> None:
    # Half of the time is exchange, so two jobs run at 2/3; b ends at 30 s, and a has 80 of its 100 s left.
    made = setting(job("a", 0, 4, 100), job("b", 0, 4, 20), performance=Shared(), contention=_Crowded())
    assert finish_s(run(made, FIFO)) == pytest.approx([110, 30], abs=1e-5)


def test_progress_at_a_stop_is_counted_to_the_microsecond() -> None:
    simulation = Simulation(setting(job("a", 0, 1, 100), job("b", 90, 1, 5)).under(FIFO, placement="packed"))
    simulation.run(until_us=61_500_000)
    outcome = simulation.close()
    assert outcome.end_us == 61_500_000
    assert [(record.finish_us, record.done) for record in outcome.jobs] == [(None, 61_500_000 * 10**9)]


def test_a_policy_that_never_starts_a_job_is_told_so() -> None:
    with fails(JigsawError, "'scripted'", "1 job", "'a'"):
        run(setting(job("a", 0, 1, 1)), Scripted(lambda moment: Decision()))
    with fails(JigsawError, "'scripted'", "1 job", "'a'"):
        run(setting(job("a", 0, 1, 1)), Scripted(lambda moment: Decision((), moment.now_us + 1)))


def test_a_policy_is_woken_when_it_asks() -> None:
    asked: list[int] = []

    def every_round(observation: Observation) -> Decision:
        asked.append(observation.now_us // SECOND)
        return Decision((Share((0,), (0,)),), observation.now_us + 1)

    run(setting(job("a", 30, 1, 150)), Scripted(every_round))
    assert asked == [60, 120, 180]


def test_a_policy_hears_of_every_end_though_nothing_was_active_in_between() -> None:
    ended: list[tuple[int, ...]] = []

    def first(observation: Observation) -> Decision:
        ended.append(observation.ended)
        return Decision(tuple(Share((index,), (0,)) for index in list(observation.jobs)[:1]))

    run(setting(job("a", 0, 1, 10), job("b", 90, 1, 10), job("c", 90, 1, 10)), Scripted(first))
    assert ended == [(), (0,), (1,)]


def second_by_second(jobs: tuple[TraceJob, ...], gpus: int, restart_s: int) -> list[int]:
    """Shortest remaining time first in whole seconds, without anything that the engine has.

    Placements do not matter: a job keeps its GPUs as long as it runs in every round.
    """
    left = [one.iterations or 0 for one in jobs]
    ready, running, ended = [0] * len(jobs), set[int](), [0] * len(jobs)
    now, changed = 0, False
    while not all(ended):
        changed |= any(one.submit_us == now * SECOND for one in jobs)
        if now % 60 == 0 and changed:
            active = [k for k, one in enumerate(jobs) if one.submit_us <= now * SECOND and not ended[k]]
            chosen, free, changed = set(), gpus, False
            for k in sorted(active, key=lambda k: (left[k], k)):
                if jobs[k].gpus <= free:
                    chosen.add(k)
                    free -= jobs[k].gpus
            for k in chosen - running:
                ready[k] = now + restart_s
            running = chosen
        now += 1
        for k in sorted(running):
            left[k] -= now > ready[k]
            if left[k] == 0:
                ended[k], changed = now, True
                running = running - {k}
    return ended


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("restart_s", [0, 25])
def test_every_job_ends_when_a_replay_second_by_second_says(seed: int, restart_s: int) -> None:
    jobs = tuple(sorted(random_jobs(seed, 40), key=lambda one: one.submit_us))
    outcome = run(setting(*jobs, restart_s=restart_s), SRTF, hysteresis="0")
    assert finish_s(outcome) == second_by_second(jobs, 8, restart_s)
    held = sum(record.held_gpu_us for record in outcome.rounds)
    assert held <= sum(record.gpu_us for record in outcome.jobs)
    gpu_us = sum(r.gpu_us for r in outcome.jobs)
    assert sum(s.gpus * (s.end_us - s.start_us) for s in outcome.stints) == gpu_us
    assert sum(held for _, held in held_by_server(outcome)) == gpu_us
    assert {server for server, _ in held_by_server(outcome)} == {0, 1}


def held_by_server(outcome: SimulationOutcome) -> list[tuple[int, int]]:
    """GPU time held of each server, from the changes of what is held."""
    found = []
    for server in sorted({use.server for use in outcome.uses}):
        own = [use for use in outcome.uses if use.server == server]
        times = [*(use.time_us for use in own), outcome.end_us]
        found.append((server, sum(use.gpus * (b - a) for use, a, b in zip(own, times, times[1:], strict=False))))
    return found


GPUS = 8


@dataclass
class _Random:
    """Draws pools of GPUs and jobs for them, keeps some shares, leaves out others, and notes what it decided."""

    draw: random.Random
    decided: list[tuple[int, tuple[Share, ...]]] = field(default_factory=list)
    name: str = "random"
    display_name: str = "draws lots"

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        return {}

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> _Random:
        return self

    def decide(self, observation: Observation) -> Decision:
        shares = [share for share in observation.shares if self.draw.random() < 0.6]
        placed = {job for share in shares for job in share.jobs}
        free = sorted(set(range(GPUS)) - {gpu for share in shares for gpu in share.gpus})
        waiting = [active for active in observation.jobs.values() if active.index not in placed]
        self.draw.shuffle(waiting)
        while waiting and free:
            first = waiting.pop()
            pool, free = free[: first.job.gpus], free[first.job.gpus :]
            partners = [active for active in waiting if active.job.gpus <= len(pool) and self.draw.random() < 0.3]
            if len(pool) == first.job.gpus:
                shares.append(Share((first.index, *(active.index for active in partners)), tuple(pool)))
                waiting = [active for active in waiting if active not in partners]
        self.decided.append((observation.now_us, tuple(shares)))
        return Decision(tuple(shares), observation.now_us + self.draw.choice([1, 10 * SECOND, 300 * SECOND]))


def replay(jobs: tuple[TraceJob, ...], decided: list[tuple[int, tuple[Share, ...]]], restart_us: int) -> dict[int, int]:
    """The end of each job: decisions as given, progress event by event in integers, every job looked at each time."""
    left = {k: (job.iterations or 0) * UNITS for k, job in enumerate(jobs)}
    ends: dict[int, int] = {}
    gpus: dict[int, tuple[int, ...]] = {}
    ready: dict[int, int] = {}
    for (now_us, shares), until_us in zip(decided, [time_us for time_us, _ in decided[1:]] + [10**18], strict=True):
        for share in shares:
            for k in share.jobs:
                if gpus.get(k) != share.gpus:
                    ready[k] = now_us + restart_us
        gpus = {k: share.gpus for share in shares for k in share.jobs}
        live = [set(share.jobs) for share in shares]
        while now_us < until_us:
            rates = {k: rate_of(SECOND * len(group)) for group in live for k in group}
            times = [max(now_us, ready[k]) - (-left[k] // rates[k]) for k in rates]
            next_us = min([until_us, *times])
            for k, rate in rates.items():
                left[k] -= rate * max(0, next_us - max(now_us, ready[k]))
                if left[k] <= 0:
                    ends[k] = next_us
            live = [{k for k in group if k not in ends} for group in live]
            now_us = next_us
            if not any(live):
                break
    return ends


@pytest.mark.parametrize("seed", range(12))
def test_every_job_ends_when_an_exact_replay_says(seed: int) -> None:
    made = setting(*random_jobs(seed, 25), performance=Shared(), restart_s=seed % 3 * 7)
    policy = _Random(random.Random(seed))
    outcome = run(made, policy)
    assert {record.index: record.finish_us for record in outcome.jobs} == replay(
        made.workload.jobs, policy.decided, made.restart_us
    )
    busy = sum(record.gpu_us for record in outcome.jobs)
    held = sum(record.held_gpu_us for record in outcome.rounds)
    assert 0 <= busy - held <= GPUS * (outcome.end_us - outcome.rounds[-1].time_us)


BROKEN = {
    "GPU 0": (Share((0,), (0, 1)), Share((1,), (0,))),
    "two shares": (Share((0,), (0, 1)), Share((0,), (2, 3))),
    "job 7": (Share((7,), (0,)),),
    "1 GPUs": (Share((0,), (0,)),),
    "ascending": (Share((0,), (7, 8)),),
    "alone": (Share((0, 1), (0, 1)),),
    "no job": (Share((0,), ()),),
}


@pytest.mark.parametrize("message", BROKEN)
def test_shares_that_cannot_be(message: str) -> None:
    made = setting(job("a", 0, 2, 9), job("b", 0, 1, 9))
    with fails(InvariantError, "round 0", "0 us", message):
        run(made, Scripted(lambda moment: Decision(BROKEN[message])))


def test_the_round_is_named_in_which_it_happens() -> None:
    def later(observation: Observation) -> Decision:
        gpus = (0, 1) if observation.now_us == 0 else (0, 1, 2)
        return Decision((Share((0,), gpus),), observation.now_us + 1)

    with fails(InvariantError, "round 1", "60000000 us", "'a'", "3 GPUs"):
        run(setting(job("a", 0, 2, 900)), Scripted(later))


class _Standing(Seconds):
    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        return (Speed(0),)


class _Over(Stepped):
    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        return super().speeds(share, jobs, (0,))


@pytest.mark.parametrize(("performance", "message"), [(_Standing(), "no speed"), (_Over(), "over")])
def test_speeds_that_would_never_end(performance: Seconds, message: str) -> None:
    with fails(InvariantError, "'a'", message):
        run(setting(job("a", 0, 1, 30), performance=performance), FIFO)


def test_progress_is_neither_lost_nor_invented() -> None:
    active = JobState(0, job("a", 0, 1, 5), work=50, done=30)
    check_progress(active, 30, 3, Speed(7), 9)  # ends within the third microsecond
    with fails(InvariantError, "9 us", "'a'", "lost"):
        check_progress(active, 31, 3, Speed(7), 9)
    with fails(InvariantError, "9 us", "'a'", "not made"):
        check_progress(active, 29, 3, Speed(7), 9)
    with fails(InvariantError, "9 us", "'a'", "more work"):
        check_progress(active, 30, 4, Speed(7), 9)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("change", "message"), [(-1, "lost"), (1, "not made")])
def test_a_policy_that_changes_progress_is_found_out(change: int, message: str, waits: bool) -> None:
    def meddle(observation: Observation) -> Decision:
        if observation.now_us == 120_000_000:
            observation.jobs[0].done += change
        stopped = waits and 60_000_000 <= observation.now_us <= 120_000_000
        return Decision(() if stopped else (Share((0,), (0, 1)),), observation.now_us + 1)

    with fails(InvariantError, "'a'", message):
        run(setting(job("a", 0, 2, 900)), Scripted(meddle))
