"""The engine against figures worked out by hand, and against a replay that goes second by second."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jigsaw_opt.errors import JigsawError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import Speed
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policies.srtf import SRTF
from jigsaw_opt.scheduling.policy import Observation
from jigsaw_opt.simulation.engine.records import SimulationOutcome
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


def test_gpus_of_a_job_that_ends_within_a_round_are_given_away_at_its_end() -> None:
    made = setting(job("a", 0, 8, 70), job("b", 0, 8, 10))
    outcome = run(made, FIFO)
    assert finish_s(outcome) == [70, 130]
    assert sum(record.gpu_us for record in outcome.jobs) == 8 * 80 * SECOND


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


def together(observation: Observation) -> Decision:
    return Decision((Share(tuple(observation.jobs), (0, 1, 2, 3)),)) if observation.jobs else Decision()


def test_jobs_that_share_gpus_speed_up_when_one_of_them_ends() -> None:
    made = setting(job("a", 0, 4, 30), job("b", 0, 4, 50), performance=Shared())
    outcome = run(made, Scripted(together))
    assert finish_s(outcome) == [60, 80]
    assert [record.gpu_us for record in outcome.jobs] == [4 * 30 * SECOND, 4 * 50 * SECOND]


def test_partners_that_change_cost_no_restart() -> None:
    made = setting(job("a", 0, 4, 100), job("b", 30, 4, 100), performance=Shared(), restart_s=7)
    outcome = run(made, Scripted(together))
    assert [record.restarts for record in outcome.jobs] == [0, 0]
    # a is alone for 60 s, 7 of them its start; while b starts, a has half of the GPUs.
    assert finish_s(outcome) == [60 + 2 * 47, 154 + (100 - 87 / 2)]


def test_a_speed_may_change_with_the_work_done() -> None:
    assert finish_s(run(setting(job("a", 0, 1, 30), performance=Stepped()), FIFO)) == [12]


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


class _Asked(Seconds):
    """Counts how often speeds are asked for."""

    asked = 0

    def speeds(self, share: Share, jobs: Sequence[TraceJob], done: Sequence[int]) -> tuple[Speed, ...]:
        self.asked += 1
        return super().speeds(share, jobs, done)


def test_the_end_that_a_preempted_job_would_have_had_is_no_event() -> None:
    # c makes a wait from 60 s to 120 s; without it a would have ended at 150 s.
    performance = _Asked()
    made = setting(job("a", 0, 4, 150), job("b", 0, 4, 140), job("c", 60, 4, 10), performance=performance)
    assert finish_s(run(made, SRTF)) == [210, 140, 70]
    assert performance.asked == 4


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
