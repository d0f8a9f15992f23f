"""Jobs that come again under the name of one that has gone: the old process is stopped and the new one started."""

from __future__ import annotations

from typing import Any

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobSubmitted,
    LiveScheduler,
    PlanChange,
    ServerBack,
    ServerLost,
)
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.scheduling.policy import Observation, choose
from tests.refusals import carries
from tests.scheduling.live_cases import in_json, star
from tests.simulation.cases import Watched, run
from tests.simulation.resumable import CASES

_POLICIES = ["fifo", "srtf", "las", "sjf_bco"]


def job(gpus: int = 2, name: str = "a") -> JobSubmitted:
    return JobSubmitted(5, TraceJob(name, 0, "m", gpus, 100))


CANCEL, FINISH = JobCancelled(5, "a"), JobFinished(5, "a")
LOST, BACK = ServerLost(5, "s0"), ServerBack(5, "s0")
OLD, NEW = ("a", ("s0/0", "s0/1")), ("a", ("s0/0",))
VARIANTS: dict[str, tuple[list[Any], list[tuple[str, Any]], list[tuple[str, Any]]]] = {
    "cancelled": ([CANCEL], [OLD], []),
    "again": ([CANCEL, job(1)], [OLD], [NEW]),
    "again as it was": ([CANCEL, job()], [OLD], [OLD]),
    "again and cancelled": ([CANCEL, job(1), CANCEL], [OLD], []),
    "twice again": ([CANCEL, job(4), CANCEL, job(1)], [OLD], [NEW]),
    "again and ended": ([CANCEL, job(1), FINISH], [OLD], []),
    "ended": ([FINISH], [], []),
    "ended and again": ([FINISH, job(1)], [], [NEW]),
    "ended, again and cancelled": ([FINISH, job(1), CANCEL], [], []),
    "cancelled, its server lost": ([CANCEL, LOST, job(1)], [OLD], [("a", ("s1/0",))]),
    "its server lost, cancelled": ([LOST, CANCEL, job(1)], [OLD], [("a", ("s1/0",))]),
    "its server lost and back": ([LOST, CANCEL, BACK, job(1)], [OLD], [NEW]),
    "its server lost, ended": ([LOST, FINISH, job(1)], [], [("a", ("s1/0",))]),
}


def told(change: PlanChange | None) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    assert change is not None and not change.moves and not change.failure
    return [(one.job, one.gpus) for one in change.stops], [(one.to.job, one.to.gpus) for one in change.starts]


@pytest.mark.parametrize("policy", _POLICIES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_old_process_is_stopped_and_the_new_one_started(policy: str, name: str) -> None:
    events, stops, starts = VARIANTS[name]
    journal: list[Any] = []
    live = LiveScheduler(star("v", "v"), policy, round_us=0, journal=journal.append)
    live.handle(job())
    live.step(5)
    for event in events:
        live.handle(event)
    other = LiveScheduler(star("v", "v"), policy, round_us=0)
    other.restore(in_json(live.state()))
    change = live.step(6)
    assert told(change) == (stops, starts)
    assert all(stop.reason == "it is cancelled" for stop in change.stops)
    assert all(carries(start.reason, "gives", "GPUs") for start in change.starts)
    assert other.step(6) == change
    again = LiveScheduler(star("v", "v"), policy, round_us=0)
    assert [again.replay(entry) for entry in in_json(journal)][-1] == change
    assert again.state() == live.state() == other.state()
    assert told(live.step(7)) == ([], [])


@pytest.mark.parametrize("policy", _POLICIES)
def test_what_no_step_has_told_of_is_not_stopped(policy: str) -> None:
    live = LiveScheduler(star("v", "v"), policy, round_us=0)
    for event in (job(), CANCEL, job(1), CANCEL):
        live.handle(event)
    assert told(live.step(5)) == ([], [])
    live.handle(job(1))
    assert told(live.step(5)) == ([], [NEW])


@pytest.mark.parametrize("text", CASES)
def test_it_decides_as_in_the_simulation(text: str) -> None:
    where, heard = CASES[text](), list[tuple[int, dict[int, int], Decision]]()

    def listen(watched: Watched, observation: Observation, decision: Decision) -> None:
        heard.append((observation.now_us, {k: active.done for k, active in observation.jobs.items()}, decision))

    policy, options = choose(text)
    outcome, jobs = run(where, Watched(policy, listen), **options), where.workload.jobs
    events = [(job.submit_us, 1, JobSubmitted(job.submit_us, job)) for job in jobs]
    events += [(one.finish_us, 0, JobFinished(one.finish_us, jobs[one.index].name)) for one in outcome.jobs]
    events.sort(key=lambda event: event[:2])
    model = {"performance": lambda cluster: where.performance}
    live = LiveScheduler(where.cluster, text, round_us=where.round_us, restart_us=where.restart_us, **model)
    for now_us, so_far, decision in heard:
        while events and events[0][0] <= now_us:
            live.handle(events.pop(0)[2])
        for index, units in so_far.items():
            live.handle(JobProgressed(now_us, jobs[index].name, units / UNITS))
        assert not live.step(now_us).failure
        shares = [(tuple(share["jobs"]), tuple(share["gpus"])) for share in live.state()["shares"]]
        assert shares == [(share.jobs, share.gpus) for share in decision.shares]
