"""What a policy may not do to jobs that run, starts that fail again and again, and who decides when a policy fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    ClusterState,
    GpuBack,
    JobFinished,
    JobFrozen,
    JobProgressed,
    JobRequeued,
    JobRunning,
    JobSubmitted,
    JobThawed,
    LiveScheduler,
    PlanChange,
    PolicyBack,
    PriorityChanged,
    ServerLost,
    StartFailed,
)
from jigsaw_opt.scheduling.live.limits import moved, staying
from tests.refusals import carries, misuse
from tests.scheduling.live_cases import MODELS, SECOND, in_json, made, runs, star

HOUR = 3600 * SECOND


def low(name: str, gpus: int = 4, **more: object) -> TraceJob:
    return replace(TraceJob(name, 0, "small", gpus, 1000, priority=0), **more)  # type: ignore[arg-type]


def high(name: str, gpus: int = 4) -> TraceJob:
    return TraceJob(name, 0, "small", gpus, 1000, priority=1)


def filled(*jobs: TraceJob, **limits: int) -> LiveScheduler:
    """Jobs that run on two servers of four GPUs under a policy that stops jobs of a low class."""
    live = LiveScheduler(star("v", "v"), "priority", models=MODELS, round_us=0, **limits)  # type: ignore[arg-type]
    for job in jobs:
        live.handle(JobSubmitted(0, job))
    live.step(0)
    return live


def settled(live: LiveScheduler, now_us: int) -> tuple[PlanChange, int]:
    """The last change, and how many steps were refused before it; a copy of the scheduler decides the same."""
    for refused in range(10):
        twin = live.copy()
        change = live.step(now_us)
        assert twin.step(now_us) == change and in_json(twin.state()) == in_json(live.state())
        if "has to stay" not in change.failure:
            return change, refused
        assert not (change.starts or change.stops or change.moves) and change.wake_us is not None
    raise AssertionError("the policy is asked again and again")


def test_a_frozen_job_is_not_stopped_and_others_are_in_its_place() -> None:
    live = filled(low("a"), low("b"))
    assert live.handle(JobFrozen(1, "b")) == ()
    assert live.handle(JobFrozen(1, "b")) == ("job 'b' is frozen already",)
    live.handle(JobSubmitted(1, high("c")))
    change, refused = settled(live, 1)
    assert [stop.job for stop in change.stops] == ["a"] and [start.to.job for start in change.starts] == ["c"]
    assert refused == 1 and runs(live).keys() == {"b", "c"}
    live.handle(JobSubmitted(2, high("d")))
    assert settled(live, 2)[0].starts == () and runs(live).keys() == {"b", "c"}
    assert live.handle(JobThawed(3, "b")) == () and live.handle(JobThawed(3, "b")) == ("job 'b' is not frozen",)
    change, refused = settled(live, 3)
    assert [stop.job for stop in change.stops] == ["b"] and refused == 0


@pytest.mark.parametrize(("limits", "later_us"), [({}, None), ({"moves_per_hour": 0}, HOUR + 1)])
def test_after_a_refusal_that_leaves_nothing_to_decide_a_step_is_due_only_later(
    limits: dict[str, int], later_us: int | None
) -> None:
    live = filled(low("a", 8), **limits)
    for event in (JobSubmitted(1, high("b", 1)), *([] if limits else [JobFrozen(1, "a")])):
        live.handle(event)
    assert "has to stay" in live.step(1).failure
    for now_us in (SECOND, 2 * SECOND):
        change = live.step(now_us)
        assert (change.failure, change.wake_us) == ("", later_us)
    live.handle(JobFinished(3 * SECOND, "a"))
    assert [start.to.job for start in live.step(3 * SECOND).starts] == ["b"]


def test_a_failure_stops_a_frozen_job_and_it_starts_again() -> None:
    live = filled(low("a"), low("b"))
    live.handle(JobFrozen(1, "b"))
    live.handle(JobSubmitted(1, high("c")))
    settled(live, 1)
    server = runs(live)["b"][0].partition("/")[0]
    live.handle(ServerLost(2, server))
    assert [stop.job for stop in settled(live, 2)[0].stops] == ["b"]
    live.handle(JobFinished(3, "c"))
    assert [start.to.job for start in settled(live, 3)[0].starts] == ["a"]


def test_partners_of_a_frozen_job_stay_with_it() -> None:
    live = LiveScheduler(star("v"), "jigsaw:depth=free", models=MODELS, round_us=0)
    for name in "ab":
        live.handle(JobSubmitted(0, TraceJob(name, 0, "small", 4, 1000)))
    live.step(0)
    (share,) = live.state()["shares"]
    assert share["jobs"] == [0, 1]

    def keep(state: ClusterState) -> list[int]:
        state.jobs[0].stays_until_us = 9
        return [*state.keep_apart(), len(state.observation().jobs), len(state.closed)]

    assert live.read(keep) == [0, 4]
    live.handle(JobProgressed(9, "a", 3.0))
    assert live.read(lambda state: len(state.observation().jobs)) == 2


@pytest.mark.parametrize("policy", ["priority", "las", "jigsaw"])
def test_a_job_that_is_not_preemptible_goes_on_under_every_policy(policy: str) -> None:
    live = LiveScheduler(star("v"), policy, models=MODELS, round_us=0, restart_us=0)
    unread = live.handle(JobSubmitted(0, low("a", preemptible=False)))
    assert not any("preemptible" in told for told in unread)
    live.step(0)
    for k in range(1, 40):
        live.handle(JobSubmitted(k * HOUR, high(f"j{k}", 1 + k % 4)))
        change, _ = settled(live, k * HOUR)
        assert "a" not in {stop.job for stop in change.stops}
        assert all(not move.restarts for move in change.moves if move.to.job == "a")
    assert runs(live)["a"] == ("s0/0", "s0/1", "s0/2", "s0/3")


def test_no_more_jobs_are_stopped_in_an_hour_than_the_limit_says() -> None:
    live = filled(*(low(name, 2) for name in "abcd"), moves_per_hour=1)
    live.handle(JobSubmitted(10, high("x", 4)))
    change, refused = settled(live, 10)
    assert refused and not change.starts and runs(live).keys() == set("abcd")
    live.handle(JobSubmitted(20, high("y", 2)))
    live.handle(JobFinished(20, "x"))
    change, _ = settled(live, 20)
    assert len(change.stops) == 1 and [start.to.job for start in change.starts] == ["y"]
    live.handle(JobSubmitted(30, high("z", 2)))
    change, refused = settled(live, 30)
    assert not change.starts and change.wake_us is not None
    assert live.state()["moves_us"] == [20]
    assert [start.to.job for start in settled(live, HOUR + 20)[0].starts] == ["z"]
    assert live.state()["moves_us"] == [HOUR + 20]


def test_without_a_limit_as_many_stop_as_the_policy_says_and_none_are_noted() -> None:
    live = filled(*(low(name, 2) for name in "abcd"))
    live.handle(JobSubmitted(10, high("x", 8)))
    assert len(live.step(10).stops) == 4 and live.state()["moves_us"] == []


def test_what_moves_and_what_has_to_stay() -> None:
    live = filled(*(low(name, 2) for name in "abcd"))
    shares = live.read(lambda state: state.shares)
    for name, gpus in (("a", (6, 7)), ("d", (0, 1))):
        index = "abcd".index(name)
        shares = tuple(replace(one, gpus=gpus) if one.jobs == (index,) else one for one in shares)
    assert live.read(lambda state: moved(state, shares, ())) == [0, 3]
    assert live.read(lambda state: moved(state, shares[:3], (1,))) == [0, 1, 3]
    live.handle(JobFrozen(0, "d"))
    assert live.read(lambda state: sorted(staying(state, [0, 1, 3], 1))) == [1, 3]
    assert live.read(lambda state: list(staying(state, [0, 1, 3], None))) == [3]


def test_a_start_that_fails_three_times_in_a_row_is_put_aside_until_something_comes() -> None:
    live = filled(low("a"))
    for k in (1, 2):
        live.handle(StartFailed(k, "a", "no image"))
        assert [start.to.job for start in live.step(k).starts] == ["a"]
    live.handle(StartFailed(3, "a", "no image"))
    assert not live.step(3).starts and live.step(HOUR).starts == ()
    explained = live.explain("a")
    assert explained.kind == "aside" and "its start failed 3 times: no image" in explained.reason
    assert live.copy().explain("a") == explained
    live.handle(PriorityChanged(HOUR, "a", 2))
    assert [start.to.job for start in live.step(HOUR).starts] == ["a"]
    live.handle(StartFailed(HOUR, "a"))
    assert [start.to.job for start in live.step(HOUR).starts] == ["a"]


def test_only_starts_that_a_step_told_of_count_and_one_that_ran_begins_anew() -> None:
    live = filled(low("a"))
    assert live.handle(StartFailed(1, "a", "no image")) == ()
    for k in range(2, 6):
        assert live.handle(StartFailed(k, "a", "no image")) == ("job 'a' does not run",)
    assert live.state()["jobs"][0]["failed_starts"] == 1 and live.explain("a").kind == "undecided"
    live.step(7)
    for event in (JobRequeued(8, "a"), JobRunning(9, low("a"), ("s0/0", "s0/1", "s0/2", "s0/3"), 8)):
        live.handle(event)
        live.step(event.time_us)
        live.handle(StartFailed(event.time_us, "a"))
        assert live.state()["jobs"][0]["failed_starts"] == 1


def test_a_report_of_progress_or_a_gpu_to_blame_is_no_failure_in_a_row() -> None:
    live = filled(low("a", 1))
    for k in range(1, 8):
        live.handle(StartFailed(k, "a", gpus=() if k % 2 else (runs(live)["a"][0],)))
        assert [start.to.job for start in live.step(k).starts] == ["a"], k
        if k % 2:
            live.handle(JobProgressed(k, "a", 1.0))
        else:
            live.handle(GpuBack(k, next(iter(live.state()["gpus_failed"]))))


def broken(monkeypatch: pytest.MonkeyPatch, live: LiveScheduler) -> None:
    """Have the policy of a scheduler fail from now on, whatever is asked."""

    def fail(*_: object) -> None:
        raise ValueError("out of order")

    monkeypatch.setattr(type(live._asked._scheduler._scheduler), "decide", fail)


def test_after_failed_steps_in_a_row_fifo_decides_until_the_policy_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    journal: list[dict[str, object]] = []
    limits = {"fall_back": 2}
    live = LiveScheduler(star("v", "v"), "las", models=MODELS, round_us=0, journal=journal.append, **limits)
    live.handle(JobRunning(0, low("a"), ("s0/0", "s0/1", "s0/2", "s0/3"), 0))
    with monkeypatch.context() as patch:
        broken(patch, live)
        live.handle(JobSubmitted(SECOND, low("b")))
        change = live.step(SECOND)
        assert "out of order" in change.failure and change.wake_us == 2 * SECOND
        change = live.step(2 * SECOND)
        assert change.failure.endswith("policy 'las' was late or failed in 2 steps in a row: policy 'fifo' decides now")
        assert change.wake_us == 2 * SECOND and live.state()["fallen"] and runs(live).keys() == {"a"}
        twin = live.copy()
        change = live.step(2 * SECOND)
        assert change == twin.step(2 * SECOND) and not change.failure and not change.stops
        assert [start.reason for start in change.starts] == ["policy 'fifo' gives it GPUs"]
        again = LiveScheduler(star("v", "v"), "las", models=MODELS, round_us=0, **limits)
        for entry in journal:
            again.replay(in_json(entry))
        assert in_json(again.state()) == in_json(live.state())
    assert live.handle(PolicyBack(3 * SECOND)) == () and not live.state()["fallen"]
    assert live.handle(PolicyBack(3 * SECOND)) == ("the policy decides already",)
    assert not live.step(3 * SECOND).failure and runs(live).keys() == {"a", "b"}
    assert live._asked.name == "policy 'las'"


def test_late_steps_in_a_row_count_and_a_decision_in_between_ends_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    live = made("las", fall_back=2)
    monkeypatch.setattr(live._asked, "is_late", lambda budget_s: True)
    live.handle(JobSubmitted(0, low("a")))
    assert live.step(0).late and live.state()["failed_steps"] == 0  # the state waits for the decision
    live.handle(JobSubmitted(SECOND, low("b")))
    assert live.step(SECOND).late
    change = live.step(2 * SECOND)
    assert not change.late and change.failure.endswith("policy 'fifo' decides now")
    assert {start.to.job for start in live.step(2 * SECOND).starts} == {"b"} and runs(live).keys() == {"a", "b"}


def test_limits_that_are_no_numbers_are_refused() -> None:
    with misuse("out-of-range moves_per_hour", "out-of-range fall_back"):
        LiveScheduler(star("v"), "fifo", moves_per_hour=-1, fall_back=-1)


def test_a_state_goes_on_under_another_policy_and_other_times_and_on_more_servers() -> None:
    live = filled(low("a"), low("b"), low("c"))
    state, before = in_json(live.state()), runs(live)
    again = LiveScheduler(star("v", "v", "v"), "las", models=MODELS, round_us=0, restart_us=7, moves_per_hour=3)
    which = "cluster, moves_per_hour, policy, restart_us"
    told = again.restore(state)
    assert told[1:] == ("policy 'las' begins anew",) and told[0].startswith("the arguments are others: ")
    assert carries(told[0], *which.split(", ")) and "seed" not in told[0] and "round_us" not in told[0]
    assert runs(again) == before
    change = again.step(1)
    assert [start.to.job for start in change.starts] == ["c"] and not change.failure
    assert not change.stops and not change.moves
    same = LiveScheduler(star("v", "v"), "priority", models=MODELS, round_us=0, restart_us=7)
    assert (
        same.restore(state) == ("the arguments are others: restart_us",) and same.state()["policy"] == state["policy"]
    )


def test_jobs_wait_whose_gpus_are_gone_and_others_stay_by_the_names_of_their_gpus() -> None:
    live = filled(low("a"), low("b"))
    live.handle(ServerLost(1, "s0"))
    live.handle(JobSubmitted(1, low("c", 1)))
    cluster = star("v", "v")
    again = LiveScheduler(replace(cluster, servers=cluster.servers[1:], links=cluster.links[1:]), "fifo", models=MODELS)
    told = again.restore(in_json(live.state()))
    assert "there is no server 's0' any more" in told and runs(again) == {"b": ("s1/0", "s1/1", "s1/2", "s1/3")}
    back = LiveScheduler(replace(cluster, servers=cluster.servers[:1], links=cluster.links[:1]), "fifo", models=MODELS)
    assert "job 'b' waits: its GPUs are gone" in back.restore(in_json(live.state()))
    back.handle(JobProgressed(2, "b", 1.0))
    assert runs(back) == {} and [(stop.job, stop.reason) for stop in back.step(2).stops][1:] == [
        ("b", "its GPUs are gone")
    ]


def test_work_that_other_models_count_less_of_is_never_all_done() -> None:
    live = filled(low("a"))
    live.handle(JobProgressed(1, "a", 900.0))
    state = in_json(live.state())
    state["jobs"][0]["trace"]["iterations"] = 10
    with pytest.raises(InvalidInputError, match="has done all its work"):
        filled_at_beginning().restore(state)
    again = LiveScheduler(star("v", "v"), "fifo", models=MODELS)
    again.restore(state)
    assert again.read(lambda state: state.jobs[0].active.left) == 1


def filled_at_beginning() -> LiveScheduler:
    return LiveScheduler(star("v", "v"), "priority", models=MODELS, round_us=0)


def test_a_state_with_a_job_whose_model_is_unknown_is_refused() -> None:
    state = in_json(filled(low("a")).state())
    with pytest.raises(InvalidInputError) as raised:
        LiveScheduler(star("v", "v"), "fifo", models={"other": MODELS["small"]}).restore(state)
    assert [problem.path for problem in raised.value.problems] == ["$.jobs[0]"]
