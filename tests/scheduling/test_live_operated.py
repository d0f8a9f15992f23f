"""Jobs that wait for others or are held, and what operators do to jobs and servers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    GpuBack,
    GpuFailed,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRequeued,
    JobRunning,
    JobSubmitted,
    LiveScheduler,
    QuotaChanged,
    ServerBack,
    ServerCordoned,
    ServerDrained,
    ServerLost,
    StartFailed,
)
from tests.refusals import misuse, refuses
from tests.scheduling.live_cases import MODELS, SECOND, in_json, runs, star


def made(*sizes: int, policy: str = "fifo", servers: int = 2) -> LiveScheduler:
    """A scheduler after its first step, with jobs a, b, c, … of so many GPUs."""
    live = LiveScheduler(star(*"v" * servers), policy, models=MODELS, round_us=0)
    for name, gpus in zip("abcdef", sizes, strict=False):
        live.handle(JobSubmitted(0, TraceJob(name, 0, "small", gpus, 1000)))
    live.step(0)
    return live


def told(live: LiveScheduler, now_us: int) -> tuple[list[str], list[str]]:
    """The jobs that the next step stops and starts; it moves none. A copy of the scheduler decides the same."""
    policy = ":".join([live._policy.name, *(f"{key}={value}" for key, value in live._options.items())])
    again = LiveScheduler(star(*"v" * len(live.cluster.servers)), policy, models=MODELS, round_us=0)
    again.restore(in_json(live.state()))
    change = live.step(now_us)
    assert not change.failure and not change.moves and again.step(now_us) == change
    assert in_json(again.state()) == in_json(live.state())
    return [stop.job for stop in change.stops], [start.to.job for start in change.starts]


def done(live: LiveScheduler, name: str) -> float:
    """Iterations that a job has done as the state has it."""
    (job,) = (one for one in live.state()["jobs"] if one["trace"]["name"] == name)
    return float(job["figures"]["done"]) / 10**15


def test_a_start_that_failed_is_told_again_and_its_bad_gpus_are_not_used() -> None:
    live = made(2)
    live.handle(JobProgressed(5, "a", 30.0))
    assert live.handle(StartFailed(10, "a", "no driver", ("s0/1",))) == ()
    change = live.step(10)
    (start,) = change.starts
    assert not change.stops and start.to.gpus == ("s0/0", "s0/2") and start.reason == "its start failed: no driver"
    assert done(live, "a") == 30
    live.handle(StartFailed(20, "a"))
    assert told(live, 20) == ([], ["a"])
    assert runs(live)["a"] == ("s0/0", "s0/2")


def test_a_move_that_failed_leaves_the_job_waiting() -> None:
    live = made(4)
    live.handle(ServerLost(10, "s0"))
    (move,) = live.step(10).moves
    assert move.to.gpus[0] == "s1/0"
    live.handle(ServerDrained(20, "s1"))
    live.handle(StartFailed(20, "a"))
    assert told(live, 20) == ([], [])


def test_a_requeued_job_waits_with_what_it_last_reported_and_starts_again() -> None:
    live = made(4, 4)
    for second, count in ((10, 100), (20, 200)):
        live.handle(JobProgressed(second * SECOND, "a", count))
    live.handle(JobRequeued(30 * SECOND, "a"))
    assert done(live, "a") == 200 and runs(live).keys() == {"b"}
    assert told(live, 30 * SECOND) == ([], ["a"])
    live.handle(JobHeld(31 * SECOND, "a"))
    live.handle(JobRequeued(31 * SECOND, "a"))
    assert live.handle(JobRequeued(31 * SECOND, "a")) == ("job 'a' does not run",)
    assert told(live, 31 * SECOND) == ([], [])


def test_partners_go_on_when_one_of_them_is_requeued() -> None:
    live = made(4, 4, policy="jigsaw:depth=free", servers=1)
    assert len(live.state()["shares"]) == 1
    live.handle(JobRequeued(10, "b"))
    assert runs(live) == {"a": ("s0/0", "s0/1", "s0/2", "s0/3")}
    change = live.step(10)
    assert [start.to.job for start in change.starts] == ["b"] and not change.stops and not change.failure


def test_a_held_job_is_not_started_until_it_is_released() -> None:
    live = made(8, 2, 2)
    assert live.handle(JobHeld(1, "b")) == () and live.handle(JobHeld(1, "b")) == ("job 'b' is held already",)
    live.handle(JobFinished(2, "a"))
    assert told(live, 2) == ([], ["c"])
    explained = live.explain("b")
    assert explained.kind == "hold" and "It starts if it is released." in explained.reason
    with misuse("contradiction job", naming=["on hold until it is released"]):
        live.when("b")
    assert live.handle(JobReleased(3, "b")) == () and live.handle(JobReleased(3, "b")) == ("job 'b' is not held",)
    assert told(live, 3) == ([], ["b"])


def test_a_hold_that_is_taken_back_before_the_next_step_changes_nothing() -> None:
    for policy in ("fifo", "las", "multifactor:estimates=recent"):
        live = LiveScheduler(star("v"), policy, models=MODELS, round_us=0)
        for name in "ab":
            live.handle(JobSubmitted(0, TraceJob(name, 0, "small", 4, 1000)))
        live.step(0)
        live.handle(JobHeld(1, "b"))
        live.handle(JobReleased(1, "b"))
        assert live.state()["news"] == {"arrived": [], "ended": [], "stopped": [1], "unfinished": []}
        assert not live.step(1).failure
        live.handle(JobFinished(2, "a"))
        assert [start.to.job for start in live.step(2).starts] == ["b"]


def test_a_job_that_runs_goes_on_when_it_is_held_and_waits_once_it_is_stopped() -> None:
    live = LiveScheduler(star("v"), "priority", models=MODELS, round_us=0)
    live.handle(JobSubmitted(0, TraceJob("a", 0, "small", 4, 1000, priority=0)))
    live.step(0)
    assert live.handle(JobHeld(1, "a")) == ("job 'a' runs, and goes on: it is held once something stops it",)
    assert told(live, 1) == ([], [])
    live.handle(JobSubmitted(2, TraceJob("b", 0, "small", 4, 1000, priority=1)))
    assert told(live, 2) == (["a"], ["b"])
    assert live.state()["jobs"][0]["held"] and live.state()["news"]["ended"] == [0]
    live.handle(JobFinished(3, "b"))
    assert told(live, 3) == ([], [])
    live.handle(JobReleased(4, "a"))
    assert told(live, 4) == ([], ["a"])


def test_a_held_job_has_no_part_in_the_quota_of_its_queue() -> None:
    live = LiveScheduler(star("v"), "fifo", models=MODELS, round_us=0)
    live.handle(QuotaChanged(0, "q", 2))
    for name in "ab":
        live.handle(JobSubmitted(0, TraceJob(name, 0, "small", 2, 1000), "q"))
    live.handle(JobHeld(0, "a"))
    assert told(live, 0) == ([], ["b"])
    live.handle(JobReleased(1, "a"))
    assert told(live, 1) == ([], []) and live.explain("a").kind == "quota"


@pytest.mark.parametrize("policy", ["fifo", "srtf", "jigsaw", "las", "backfill:estimates=recent"])
def test_on_a_cordoned_server_jobs_go_on_and_none_comes(policy: str) -> None:
    live = LiveScheduler(star("v", "v"), policy, round_us=0, restart_us=0, models=MODELS)
    live.handle(JobRunning(0, TraceJob("a", 0, "small", 2, 10**6), ("s0/0", "s0/1"), 0))
    assert live.handle(ServerCordoned(0, "s0")) == ()
    assert live.handle(ServerCordoned(0, "s0")) == ("server 's0' is lost, drained or cordoned already",)
    for k in range(4):
        live.handle(JobSubmitted(0, TraceJob(f"j{k}", 0, "small", 2, 5)))
    change = live.step(0)
    assert {start.to.gpus[0] for start in change.starts} <= {"s1/0", "s1/2"} and len(change.starts) >= 2
    assert not change.stops and not change.moves and not change.failure
    assert runs(live)["a"] == ("s0/0", "s0/1") and "2 free" not in str(live.explain("a"))
    live.handle(ServerBack(SECOND, "s0"))
    change = live.step(SECOND)
    assert not change.failure and any(start.to.gpus[0].startswith("s0") for start in change.starts)


def test_a_job_across_a_cordoned_server_keeps_its_other_gpus_until_it_ends() -> None:
    live = LiveScheduler(star("v", "v"), "las", models=MODELS, round_us=0)
    live.handle(JobRunning(0, TraceJob("wide", 0, "small", 4, 10**6), ("s0/2", "s0/3", "s1/0", "s1/1"), 0))
    live.handle(ServerCordoned(1, "s0"))
    live.handle(JobSubmitted(1, TraceJob("a", 0, "small", 4, 5)))
    assert told(live, 1) == ([], [])
    live.handle(JobSubmitted(2, TraceJob("b", 0, "small", 2, 5)))
    assert told(live, 2) == ([], ["b"]) and runs(live)["b"] == ("s1/2", "s1/3")
    live.handle(JobFinished(3, "b"))
    live.handle(JobRequeued(3, "wide"))
    assert told(live, 3) == ([], ["a"])
    live.handle(ServerBack(4, "s0"))
    assert told(live, 4) == ([], ["wide"])


def test_only_a_job_that_ends_by_itself_tells_how_long_jobs_last() -> None:
    live = made(2, 2, 2, 2, policy="backfill:estimates=recent")
    live.handle(ServerCordoned(10, "s0"))
    live.handle(JobCancelled(20, "c"))
    live.handle(JobSubmitted(20, TraceJob("e", 0, "small", 8, 10)))
    assert told(live, 20) == (["c"], []) and live.state()["policy"]["lengths"] == []
    live.handle(JobFinished(30, "d"))
    assert in_json(live.state())["news"]["ended"] == [3]
    assert told(live, 30) == ([], []) and live.state()["policy"]["lengths"] == [{"user": "", "last": [30]}]


def test_a_cordoned_server_that_is_drained_is_emptied() -> None:
    live = made(4)
    live.handle(ServerCordoned(1, "s0"))
    assert told(live, 1) == ([], [])
    live.handle(ServerDrained(2, "s0"))
    (move,) = live.step(2).moves
    assert move.to.gpus[0] == "s1/0" and move.reason == "server 's0' is drained"
    live.handle(ServerBack(3, "s0"))
    assert live.handle(ServerBack(3, "s0")) == ("server 's0' is in use already",)


def test_the_job_of_a_gpu_that_fails_stops_and_the_gpu_is_used_again_once_it_is_back() -> None:
    live = made(4, 4)
    for second, count in ((10, 100), (20, 200)):
        live.handle(JobProgressed(second * SECOND, "a", count))
    assert live.handle(GpuFailed(30 * SECOND, "s0/2")) == ()
    assert live.handle(GpuFailed(30 * SECOND, "s0/2")) == ("GPU 's0/2' has failed already",)
    assert done(live, "a") == 200
    change = live.step(30 * SECOND)
    assert [(stop.job, stop.reason) for stop in change.stops] == [("a", "GPU 's0/2' has failed")]
    assert runs(live).keys() == {"b"}
    explained = live.explain("a")
    assert explained.kind == "failure" and "GPU s0/2 is back" in explained.reason
    assert "1 out of use" in explained.cluster
    live.handle(JobSubmitted(31 * SECOND, TraceJob("c", 0, "small", 2, 10)))
    live.handle(GpuBack(32 * SECOND, "s0/2"))
    assert live.handle(GpuBack(32 * SECOND, "s0/2")) == ("GPU 's0/2' is in use already",)
    assert told(live, 32 * SECOND) == ([], ["a"])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StartFailed(9, "x"), "unknown-name $.job"),
        (StartFailed(9, "a", gpus=("s0/9",)), "unknown-name $.gpus[0]"),
        (StartFailed(9, "a", gpus=None), "wrong-type $.gpus"),  # type: ignore[arg-type]
        (StartFailed(9, "a", 5), "wrong-type $.reason"),  # type: ignore[arg-type]
        (JobRequeued(9, "x"), "unknown-name $.job"),
        (JobHeld(9, "x"), "unknown-name $.job"),
        (JobReleased(9, ""), "malformed $.job"),
        (ServerCordoned(9, "x"), "unknown-name $.server"),
        (GpuFailed(9, "s0"), "unknown-name $.gpu"),
        (GpuBack(9, 3), "wrong-type $.gpu"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_told_by_its_code(event: Any, expected: str) -> None:
    live = made(2)
    before = in_json(live.state())
    with misuse(expected):
        live.handle(event)
    assert in_json(live.state()) == before


def job(name: str, gpus: int = 1, **more: Any) -> JobSubmitted:
    return JobSubmitted(
        0, TraceJob(**{"name": name, "submit_us": 0, "model": "m", "gpus": gpus, "iterations": 100, **more})
    )


def fed(*events: Any) -> LiveScheduler:
    live = LiveScheduler(star("v", "v"), "fifo", round_us=0)
    for event in events:
        live.handle(event)
    return live


def starts(live: LiveScheduler, *events: Any) -> list[str]:
    """The jobs that start after some events, also by a copy of the scheduler."""
    for event in events:
        live.handle(event)
    again = fed()
    again.restore(in_json(live.state()))
    change = live.step(live.state()["time_us"])
    assert again.step(change.time_us) == change and in_json(again.state()) == in_json(live.state())
    return [start.to.job for start in change.starts]


def test_a_job_starts_once_all_jobs_before_it_have_ended_well_or_not() -> None:
    live = fed(job("a"), job("b"), job("c", after=("a", "b")), job("d", after=("c",)))
    assert starts(live) == ["a", "b"]
    assert starts(live, JobFinished(1, "a")) == []
    assert starts(live, JobCancelled(2, "b")) == ["c"]
    assert starts(live, JobFinished(3, "c")) == ["d"]


def test_a_job_waits_for_every_task_of_an_array_that_was_there_when_it_was_submitted() -> None:
    live = fed(job("a1", array="a"), job("a2", array="a"), job("b", after=("a",)), job("a3", array="a"))
    assert starts(live) == ["a1", "a2", "a3"]
    assert starts(live, JobFinished(1, "a2")) == []
    assert starts(live, JobFinished(2, "a1")) == ["b"]


def test_only_so_many_tasks_of_an_array_are_there_as_its_limit_says() -> None:
    tasks = [job(f"a{k}", array="a", array_limit=2) for k in range(4)]
    live = fed(*tasks, job("b", array="b", array_limit=1))
    assert starts(live) == ["a0", "a1", "b"]
    assert starts(live, JobRequeued(1, "a0")) == ["a0"]  # it keeps its place
    assert starts(live, JobHeld(2, "a2"), JobFinished(2, "a0")) == ["a3"]
    assert starts(live, JobReleased(3, "a2")) == []
    assert live.explain("a2").kind == "array" and "It starts once job a1 ends" in live.explain("a2").reason
    assert starts(live, JobFinished(4, "a3")) == ["a2"]


def test_a_job_of_a_name_that_comes_again_does_not_make_others_wait_anew() -> None:
    live = fed(job("a"), job("b", after=("a",)))
    assert starts(live) == ["a"]
    assert starts(live, JobCancelled(0, "a"), job("a", after=("b",))) == ["b"]
    assert starts(live, JobFinished(1, "b")) == ["a"]


def test_a_prediction_does_not_wait_for_a_later_job_of_the_same_name() -> None:
    live = fed(job("x", 8), job("a"), job("b", after=("a",)))
    assert starts(live) == ["x"]
    assert starts(live, JobCancelled(0, "a"), job("a")) == []
    assert live.when("b").starts_us == live.when("a").starts_us != ()


def test_what_there_is_not_is_not_waited_for_and_told() -> None:
    live = fed(job("a"))
    told = live.handle(job("b", after=("a", "x")))
    assert told == ("job 'b' does not wait for 'x': no job that waits or runs has this name or array",)
    assert starts(live) == ["a"] and starts(live, JobFinished(1, "a")) == ["b"]


def test_a_job_that_runs_in_truth_waits_for_nothing_any_more() -> None:
    live = fed(job("a"), job("b", after=("a",)), job("c", after=("a",)))
    assert starts(live) == ["a"]
    own = TraceJob("b", 0, "m", 1, 100, after=("a",))
    assert starts(live, JobRunning(1, own, ("s1/0",), 0)) == []
    assert starts(live, JobRequeued(2, "b")) == ["b"]
    assert live.explain("c").kind == "after"


def test_it_is_explained_for_which_jobs_a_job_waits() -> None:
    live = fed(job("a"), job("b"), job("c", after=("b",)), job("d", after=("a", "b")))
    starts(live)
    one, both = live.explain("c"), live.explain("d")
    assert one.kind == both.kind == "after"
    assert "It starts once job b ends" in one.reason and "jobs a and b have left" in both.reason


def test_a_state_names_jobs_before_by_their_numbers() -> None:
    state = in_json(fed(job("a"), job("b", after=("a",))).state())
    assert state["jobs"][1]["waits_for"] == [0]
    state["jobs"][1]["waits_for"] = [2]
    with refuses("out-of-range $.jobs[1].waits_for[0]"):
        fed().restore(state)


def test_a_job_that_was_submitted_for_later_begins_then() -> None:
    live = fed(job("late", submit_us=50), job("a", submit_us=90), job("b"))
    change = live.step(0)
    assert [start.to.job for start in change.starts] == ["b"] and change.wake_us == 50
    assert live.explain("late", 0.0).kind == "begin" and not live.step(49).starts
    assert starts(live, JobProgressed(50, "b", 1.0)) == ["late"]
    change = live.step(90)
    assert [start.to.job for start in change.starts] == ["a"] and change.wake_us is None
    assert live.state()["jobs"][0]["trace"]["submit_us"] == 50


def test_a_step_that_is_not_written_down_begins_no_job() -> None:
    def write(entry: Any) -> None:
        if entry["time_us"] == 60:
            raise OSError

    live = LiveScheduler(star("v"), "las", round_us=0, journal=write)
    live.handle(job("a", submit_us=50))
    assert not live.step(0).starts
    before = in_json(live.state())
    for _ in range(2):
        with suppress(OSError):
            live.step(60)
        assert in_json(live.state()) == before
    assert [start.to.job for start in live.step(61).starts] == ["a"]


def test_a_job_that_runs_in_truth_has_begun() -> None:
    live = fed(job("a", submit_us=50))
    assert starts(live, JobRunning(9, TraceJob("a", 50, "m", 1, 100), ("s0/0",), 3)) == []
    assert live.state()["jobs"][0]["trace"]["submit_us"] == 3
