"""A policy sees what has happened: it decides the same whatever is still to be submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.policy import Observation, choose, refusal
from jigsaw_opt.simulation.engine.setting import Setting
from jigsaw_opt.simulation.engine.simulation import Simulation
from tests.refusals import misuse, require_data
from tests.simulation.cases import Scripted, Watched, job, run, setting
from tests.simulation.resumable import CASES


def decided(text: str, where: Setting, before_us: int) -> list[tuple[int, Decision]]:
    noted: list[tuple[int, Decision]] = []

    def look(watched: Watched, observation: Observation, decision: Decision) -> None:
        assert not hasattr(watched.setting, "workload")
        noted.append((observation.now_us, decision))

    policy, options = choose(text)
    Simulation(where.under(Watched(policy, look), **options)).run(until_us=before_us - 1)
    return noted


@pytest.mark.parametrize("text", CASES)
def test_jobs_that_are_still_to_come_change_no_decision(text: str) -> None:
    whole = CASES[text]()
    jobs = whole.workload.jobs
    kept = next(k for k in range(len(jobs) // 2, len(jobs)) if jobs[k].submit_us > jobs[k - 1].submit_us)
    cut = replace(whole, workload=replace(whole.workload, jobs=jobs[:kept]))
    first = decided(text, whole, jobs[kept].submit_us)
    assert first
    assert decided(text, cut, jobs[kept].submit_us) == first


class _Narrow:
    """Refuses jobs by their width."""

    def refuses(self, job: TraceJob) -> str | None:
        return f"job {job.name!r} is too wide" if job.gpus > 2 else None

    def decide(self, observation: Observation) -> Decision:
        raise AssertionError("it is never asked")


def test_the_first_job_that_a_policy_refuses_is_named_before_anything_runs() -> None:
    jobs = (job("a", 0, 1, 10), job("b", 5, 4, 10), job("c", 9, 8, 10))
    require_data(refusal(_Narrow(), jobs), "'b'")
    assert refusal(_Narrow(), jobs[:1]) is None
    assert refusal(Scripted(lambda moment: Decision()), jobs) is None
    policy, options = choose("fifo")
    with misuse("unsupported", naming=["'d'", "asks for 9"]):
        run(setting(*jobs, job("d", 99, 9, 10)), policy, **options)
