"""Restart costs and aging under preemptive policies: who takes GPUs from whom, and who comes first at last."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.policy import Observation, Policy, choose
from jigsaw_opt.simulation.engine.records import SimulationOutcome
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.simulation.cases import (
    SECOND,
    Watched,
    cluster,
    finish_s,
    job,
    random_jobs,
    restarts,
    run,
    setting,
    starts_s,
)

HOUR = 3600


def under(policy: str, *jobs: TraceJob, restart_s: int = 0) -> SimulationOutcome:
    made = setting(*jobs, cluster=cluster(1, 4), round_us=0, restart_s=restart_s)
    simulation = Simulation(made.under(policy))
    simulation.run()
    return simulation.close()


@pytest.mark.parametrize(
    ("hysteresis", "seconds", "stopped"), [(0, 920, [1, 0]), (1, 920, [0, 0]), (2, 920, [0, 0]), (4, 200, [1, 0])]
)
def test_a_job_takes_gpus_only_if_it_is_shorter_by_some_restarts(
    hysteresis: int, seconds: int, stopped: list[int]
) -> None:
    """After 100 s, 70 of them behind the start, the first has 1000 - 70 s left; 920 s are less than 30 s shorter."""
    jobs = (job("a", 0, 4, 1000), job("b", 100, 4, seconds))
    assert restarts(under(f"srtf:hysteresis={hysteresis}", *jobs, restart_s=30)) == stopped


def test_aging_bounds_waiting() -> None:
    """It waits until the small jobs run out, or for so many hours as aging says; then it keeps its GPUs to its end."""
    small = [job(f"s{k}", k * HOUR, 1, 2 * HOUR) for k in range(60)]
    jobs = (small[0], job("wide", 60, 4, 3 * HOUR), *small[1:])
    assert starts_s(under("srtf", *jobs))[1] > 60 * HOUR
    after = under("srtf:aging=10", *jobs)
    assert (starts_s(after)[1], after.jobs[1].restarts) == (10 * HOUR + 60, 0)
    before, after = (under(f"las:threshold=1{option}", *jobs) for option in ("", ":aging=10"))
    assert finish_s(after)[1] < finish_s(before)[1]


def test_who_aged_first_goes_first_and_is_not_stopped() -> None:
    """The first job ran for six hours, so that it has waited five only at 11 h; the second one has at 6 h already."""
    jobs = (job("a", 0, 4, 20 * HOUR), *(job(f"s{k}", (6 + k) * HOUR, 4, HOUR) for k in range(12)))
    outcome = under("srtf:aging=5", jobs[0], job("b", HOUR, 4, 30 * HOUR), *jobs[1:])
    first, second = outcome.jobs[:2]
    assert (second.start_us, second.finish_us, second.restarts) == (6 * HOUR * SECOND, 36 * HOUR * SECOND, 0)
    assert (first.finish_us, first.restarts) == ((36 + 14) * HOUR * SECOND, 1)


def waits_of_aged_jobs(policy: Policy, options: Mapping[str, str], seed: int) -> int:
    """How often aged jobs waited, each time for others that had aged before."""
    aged: dict[int, None] = {}
    waits = 0

    def look(watched: Watched, observation: Observation, decision: Decision) -> None:
        nonlocal waits
        since = {index: one.job.submit_us + one.run_us + HOUR * SECOND for index, one in observation.jobs.items()}
        new = sorted((us, index) for index, us in since.items() if us <= observation.now_us and index not in aged)
        aged.update(dict.fromkeys(index for _, index in new))
        running, left = {index for share in decision.shares for index in share.jobs}, watched.setting.gpu_count
        for active in (observation.jobs[index] for index in aged if index in observation.jobs):
            assert (active.index in running) == (active.job.gpus <= left), "all others that run aged before it"
            left -= active.job.gpus if active.index in running else 0
            waits += active.index not in running

    made = setting(*random_jobs(seed, 40, most=4), cluster=cluster(1, 4), round_us=0, restart_s=10)
    run(made, Watched(policy, look), **options)
    return waits


@pytest.mark.parametrize("text", ["srtf", "las:threshold=1", "srtf:measure=service"])
def test_only_jobs_that_aged_before_come_before_an_aged_job(text: str) -> None:
    policy, options = choose(f"{text}:aging=1")
    assert sum(waits_of_aged_jobs(policy, options, seed) for seed in range(6)) > 100
