"""Jobs that wait for others: for jobs and arrays before them, and for a place in their own array."""

from __future__ import annotations

from typing import Any

from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobRunning,
    JobSubmitted,
    LiveScheduler,
)
from tests.refusals import refuses
from tests.scheduling.live_cases import in_json, star


def job(name: str, gpus: int = 1, **more: Any) -> JobSubmitted:
    return JobSubmitted(0, TraceJob(name, 0, "m", gpus, 100, **more))


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
