"""Policies and performance models that break a rule are found out, with the round and the job."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import Speed
from jigsaw_opt.scheduling.performance.seconds import Seconds
from jigsaw_opt.scheduling.policies.fifo import FIFO
from jigsaw_opt.scheduling.policy import JobState, Observation
from jigsaw_opt.scheduling.share_rules import InvariantError
from jigsaw_opt.simulation.engine.running import check_progress
from tests.refusals import fails
from tests.simulation.cases import Scripted, Stepped, job, run, setting

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
