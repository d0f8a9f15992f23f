"""Restart costs and aging under preemptive policies: who takes GPUs from whom, and who comes first at last."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, Policy, choose
from jigsaw_opt.simulation.engine import Simulation
from jigsaw_opt.simulation.metrics import summarise
from jigsaw_opt.simulation.records import SimulationOutcome
from tests.refusals import misuse
from tests.simulation.cases import SECOND, cluster, job, random_jobs, setting

HOUR = 3600


def under(policy: str, *jobs: TraceJob, restart_s: int = 0, gpus: int = 4) -> SimulationOutcome:
    made = setting(*jobs, cluster=cluster(1, gpus), round_us=0, restart_s=restart_s)
    simulation = Simulation(made.under(policy))
    simulation.run()
    return simulation.close()


def starts_h(outcome: SimulationOutcome) -> list[float]:
    return [(record.start_us or 0) / SECOND / HOUR for record in outcome.jobs]


@pytest.mark.parametrize(("hysteresis", "restarts"), [(0, 1), (1, 0), (2, 0)])
def test_a_job_that_is_hardly_shorter_takes_no_gpus(hysteresis: int, restarts: int) -> None:
    """After 100 s, 70 of them behind the start, the first has 1000 - 70 s left and the other 920 s: less than 30 s."""
    jobs = (job("a", 0, 4, 1000), job("b", 100, 4, 920))
    outcome = under(f"srtf:hysteresis={hysteresis}", *jobs, restart_s=30)
    assert sum(record.restarts for record in outcome.jobs) == restarts


def test_a_job_that_is_much_shorter_still_takes_them() -> None:
    jobs = (job("a", 0, 4, 1000), job("b", 100, 4, 200))
    outcome = under("srtf:hysteresis=4", *jobs, restart_s=30)
    assert [record.restarts for record in outcome.jobs] == [1, 0]
    assert under("srtf", *jobs, restart_s=30).jobs == outcome.jobs


def crowd(wide: int) -> tuple[TraceJob, ...]:
    """Two jobs of one GPU at a time for 60 hours, and a job of `wide` GPUs that is longer than any."""
    small = [job(f"s{k}", k * HOUR, 1, 2 * HOUR) for k in range(60)]
    return (*small[:1], job("wide", 60, wide, 3 * HOUR), *small[1:])


@pytest.mark.parametrize("policy", ["srtf", "las:threshold=1"])
def test_aging_bounds_waiting(policy: str) -> None:
    """It waits until the small jobs run out, or for so many hours as aging says; then it keeps its GPUs to its end."""
    jobs = crowd(4)
    before, after = under(policy, *jobs), under(f"{policy}:aging=10", *jobs)
    assert starts_h(under("srtf", *jobs))[1] > 60
    assert starts_h(after)[1] == pytest.approx(10 + 60 / HOUR, abs=1e-9) or policy != "srtf"
    assert after.jobs[1].restarts == 0 or policy != "srtf"
    assert (after.jobs[1].finish_us or 0) < (before.jobs[1].finish_us or 0)


def test_aged_jobs_start_in_order_of_submission() -> None:
    jobs = (
        *(job(f"s{k}", k * HOUR, 4, HOUR) for k in range(20)),
        *(job(f"l{k}", k + 1, 4, 9 * HOUR) for k in range(3)),
    )
    outcome = under("srtf:aging=5", *jobs)
    made = setting(*jobs).workload.jobs
    long = [record for record in outcome.jobs if made[record.index].name.startswith("l")]
    starts = [record.start_us or 0 for record in long]
    assert starts == sorted(starts)
    assert starts[0] == (5 * HOUR + 1) * SECOND
    assert starts[1] == starts[0] + 9 * HOUR * SECOND, "the first of them keeps its GPUs"


def test_who_aged_first_goes_first_and_is_not_stopped() -> None:
    """The first job ran for six hours, so that it has waited five only at 11 h; the second one has at 6 h already."""
    jobs = (job("a", 0, 4, 20 * HOUR), *(job(f"s{k}", (6 + k) * HOUR, 4, HOUR) for k in range(12)))
    outcome = under("srtf:aging=5", jobs[0], job("b", HOUR, 4, 30 * HOUR), *jobs[1:])
    first, second = outcome.jobs[:2]
    assert (second.start_us, second.finish_us, second.restarts) == (6 * HOUR * SECOND, 36 * HOUR * SECOND, 0)
    assert (first.finish_us, first.restarts) == ((36 + 14) * HOUR * SECOND, 1)


class Watched:
    """A policy whose decisions are looked at: of those that have aged, who comes before whom."""

    def __init__(self, inner: Policy, limit_us: int) -> None:
        self.name, self.display_name, self.options = inner.name, inner.display_name, inner.options
        self._inner, self._limit_us = inner, limit_us
        self.aged: dict[int, None] = {}
        self.waits = 0

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Watched:
        self._scheduler, self._gpus = self._inner.start(setting, options), setting.gpu_count
        return self

    def decide(self, observation: Observation) -> Decision:
        decision = self._scheduler.decide(observation)
        since = {index: one.job.submit_us + one.run_us + self._limit_us for index, one in observation.jobs.items()}
        new = sorted((us, index) for index, us in since.items() if us <= observation.now_us and index not in self.aged)
        self.aged |= dict.fromkeys(index for _, index in new)
        running, left = {index for share in decision.shares for index in share.jobs}, self._gpus
        for active in (observation.jobs[index] for index in self.aged if index in observation.jobs):
            assert (active.index in running) == (active.job.gpus <= left), "all others that run aged before it"
            left -= active.job.gpus if active.index in running else 0
            self.waits += active.index not in running
        return decision


@pytest.mark.parametrize("text", ["srtf", "las:threshold=1", "srtf:measure=service"])
def test_only_jobs_that_aged_before_come_before_an_aged_job(text: str) -> None:
    policy, options = choose(f"{text}:aging=1")
    waits = 0
    for seed in range(6):
        watched = Watched(policy, HOUR * SECOND)
        made = setting(*random_jobs(seed, 40, most=4), cluster=cluster(1, 4), round_us=0, restart_s=10)
        Simulation(made.under(watched, **options)).run()
        waits += watched.waits
    assert waits > 100


def test_the_longest_wait_has_the_times_between_runs() -> None:
    """Short jobs stop the first one for ten hours in all, and no job waits for its first start."""
    jobs = (job("a", 0, 4, 3 * HOUR), *(job(f"s{k}", (1 + k) * HOUR, 4, HOUR) for k in range(10)))
    made = setting(*jobs, cluster=cluster(1, 4), round_us=0)
    summary = summarise(made, under("srtf", *jobs))
    assert (summary.p99_waiting_h, summary.longest_waiting_h, summary.longest_waiting_gpus) == (0, 10, 4)


def test_values_of_the_options() -> None:
    for words in (
        "srtf:aging=none",
        "las:aging=7",
        "las:aging=0.5",
        "srtf:aging=30min",
        "jigsaw:aging=24:hysteresis=0",
        "srtf:hysteresis=1000",
    ):
        choose(words)
    for words in ("srtf:aging=soon", "srtf:hysteresis=-1", "las:aging=-1", "las:aging=3d"):
        option = words.partition(":")[2].partition("=")[0]
        with misuse(f"out-of-range policy.{option}"):
            choose(words)
