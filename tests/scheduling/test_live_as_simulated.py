"""Told what happens in a simulation, a live scheduler decides as the policy does there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from jigsaw_opt.scheduling import ClusterEvent, JobFinished, JobProgressed, JobSubmitted, LiveScheduler
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.performance import UNITS
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, Policy, Scheduler, choose
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.setting import Setting
from tests.simulation.resumable import CASES


@dataclass
class Listened:
    """A policy of which is noted what it was asked and what it said."""

    inner: Policy
    name: str = "listened"
    display_name: str = "another policy, listened to"
    scheduler: Scheduler | None = None
    decisions: list[tuple[int, dict[int, int], Decision]] = field(default_factory=list)

    @property
    def options(self) -> Mapping[str, Sequence[str]]:
        return self.inner.options

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Listened:
        self.scheduler = self.inner.start(setting, options)
        return self

    def decide(self, observation: Observation) -> Decision:
        assert self.scheduler is not None
        done = {index: active.done for index, active in observation.jobs.items()}
        self.decisions.append((observation.now_us, done, self.scheduler.decide(observation)))
        return self.decisions[-1][2]


def simulated(text: str, where: Setting) -> tuple[Listened, list[tuple[int, int, ClusterEvent]]]:
    """What the policy decided, and the submissions and ends of jobs, in order."""
    policy, options = choose(text)
    listened = Listened(policy)
    simulation = Simulation(where.under(listened, **options))
    simulation.run()
    jobs = where.workload.jobs
    events: list[tuple[int, int, ClusterEvent]] = [(job.submit_us, 1, JobSubmitted(job.submit_us, job)) for job in jobs]
    for record in simulation.close().jobs:
        assert record.finish_us is not None
        events.append((record.finish_us, 0, JobFinished(record.finish_us, jobs[record.index].name)))
    return listened, sorted(events, key=lambda event: event[:2])


@pytest.mark.parametrize("text", CASES)
def test_it_decides_as_in_the_simulation(text: str) -> None:
    where = CASES[text]()
    listened, events = simulated(text, where)
    live = LiveScheduler(
        where.cluster,
        text,
        performance=lambda cluster: where.performance,
        round_us=where.round_us,
        restart_us=where.restart_us,
    )
    for now_us, done, decision in listened.decisions:
        while events and events[0][0] <= now_us:
            live.handle(events.pop(0)[2])
        for index, units in done.items():
            live.handle(JobProgressed(now_us, where.workload.jobs[index].name, units / UNITS))
        change = live.step(now_us)
        assert not change.failure
        shares = live.state()["shares"]
        assert [(share["jobs"], share["gpus"]) for share in shares] == [
            (list(share.jobs), list(share.gpus)) for share in decision.shares
        ]
