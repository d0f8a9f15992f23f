"""Jobs that wait: for jobs and arrays before them, for a place in their own array, and for their time to begin."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobRequeued,
    JobRunning,
    JobSubmitted,
    LiveScheduler,
)
from tests.refusals import refuses
from tests.scheduling.live_cases import in_json, star


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
    assert live.explain("a2").kind == "gpus" and "It starts once job a1 ends" in live.explain("a2").reason
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
