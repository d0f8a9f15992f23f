"""Told what happens in a simulation, a live scheduler decides as the policy does there."""

from __future__ import annotations

import pytest

from jigsaw_opt.scheduling import JobFinished, JobProgressed, JobSubmitted, LiveScheduler
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.scheduling.policy import Observation, choose
from tests.simulation.cases import Watched, run
from tests.simulation.resumable import CASES


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
