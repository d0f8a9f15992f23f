"""Whatever a policy decides, jobs end when an exact replay of its decisions says."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.performance import UNITS, rate_of
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation
from tests.simulation.cases import SECOND, Shared, random_jobs, run, setting

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
