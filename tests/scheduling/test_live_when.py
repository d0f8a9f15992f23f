"""A live scheduler foretells when a job starts: as it then starts, where run times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import JobFinished, JobProgressed, JobSubmitted, LiveScheduler, QuotaChanged, ServerLost
from jigsaw_opt.scheduling.start_prediction import PastAnswer
from tests.refusals import misuse
from tests.scheduling.live_cases import SECOND, star
from tests.simulation.cases import job

POLICIES = ("fifo", "backfill:default_limit=4", "srtf", "las")


def busy(policy: str) -> LiveScheduler:
    """Two jobs of 400 s run on 8 GPUs, and two wait, all for 100 s."""
    live = LiveScheduler(star("a", "a"), policy, restart_us=0)
    for name, gpus, seconds in (("a", 4, 400), ("b", 4, 400), ("c", 8, 500), ("d", 4, 600)):
        live.handle(JobSubmitted(0, job(name, 0, gpus, seconds)))
        live.step(0)
    live.handle(JobProgressed(100 * SECOND, "a", 100))
    live.handle(JobProgressed(100 * SECOND, "b", 100))
    live.step(100 * SECOND)
    return live


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_start_as_is_foretold(policy: str) -> None:
    live = busy(policy)
    before = live.state()
    found = {name: live.when(name) for name in ("c", "d")}
    assert live.state() == before
    assert {len(one.starts_us) for one in found.values()} == {1}
    for name in ("a", "b"):
        live.handle(JobFinished(400 * SECOND, name))
    assert [one.to.job for one in live.step(420 * SECOND).starts] == ["c"]
    assert set(found["c"].starts_us) == {420 * SECOND}, "the next round after 400 s"
    live.handle(JobFinished(920 * SECOND, "c"))
    assert [one.to.job for one in live.step(960 * SECOND).starts] == ["d"]
    assert set(found["d"].starts_us) == {960 * SECOND}


def test_run_times_are_drawn_from_past_jobs() -> None:
    """All past jobs ran for 300 or 700 s, so that those that have run for 100 s end 200 or 600 s from now."""
    past = [job(f"p{k}", 0, 4, seconds) for k, seconds in enumerate([300, 700] * 10)]
    found = busy("fifo").when("c", past, samples=50)
    assert {start_us // SECOND for start_us in found.starts_us} == {300, 720}
    assert found.starts_us == busy("fifo").when("c", past, samples=50).starts_us


def test_a_job_that_should_have_started_long_ago_is_a_warning() -> None:
    """The same that the command `when` says: both jobs have ended, and nobody took a step."""
    live = busy("fifo")
    assert live.when("c").warning == ""
    for name in ("a", "b"):
        live.handle(JobFinished(2000 * SECOND, name))
    found = live.when("c")
    assert str(found).count("do not trust") == 1
    assert found.plain()["warnings"] == [found.warning] and "job c has waited for 33.33 min" in found.warning


def test_answers_correct_what_is_told() -> None:
    told = busy("fifo").when("c")
    late = [PastAnswer(told, 2 * (told.starts_us[0] - told.now_us))] * 20
    corrected = replace(told, answers=tuple(late))
    assert corrected.median_us == pytest.approx(told.now_us + late[0].wait_us, abs=1)


def test_what_is_out_of_use_stays_so() -> None:
    live = busy("fifo")
    live.handle(ServerLost(110 * SECOND, "s1"))
    live.step(110 * SECOND)
    found = live.when("c", samples=2)
    assert (found.starts_us, found.samples) == ((), 1)
    assert "or never" in str(found)


def test_refusals() -> None:
    live = busy("fifo")
    live.handle(QuotaChanged(110 * SECOND, "q", 1))
    live.handle(JobSubmitted(110 * SECOND, TraceJob("held", 0, "m", 4, 5), queue="q"))
    for name, why in {"x": "there is no job 'x'", "a": "job 'a' runs", "held": "kept from the policy"}.items():
        with pytest.raises(UsageError, match=why):
            live.when(name)
    with misuse("out-of-range samples"):
        live.when("c", samples=0)
