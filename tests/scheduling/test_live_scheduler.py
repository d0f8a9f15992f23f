"""A live scheduler: valid at every step, the same again, put aside and taken up at any moment."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from jigsaw_opt.errors import InvalidInputError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobRunning,
    JobSubmitted,
    LinkDown,
    LinkUp,
    LiveScheduler,
    PriorityChanged,
    ServerAdded,
    ServerBack,
    ServerDrained,
    ServerLost,
)
from jigsaw_opt.scheduling.allocation import Decision, Share
from jigsaw_opt.scheduling.live import scheduler as live_scheduler
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, Stateless
from tests.refusals import carries, misuse, refuses
from tests.scheduling.live_cases import MODELS, SECOND, in_json, runs, star


def submitted(*sizes: int, policy: str = "fifo", servers: int = 2, **more: Any) -> LiveScheduler:
    live = LiveScheduler(star(*"v" * servers), policy, models=MODELS, round_us=0, **more)
    for k, gpus in enumerate(sizes):
        live.handle(JobSubmitted(0, TraceJob(f"j{k}", 0, "small", gpus, 1000)))
    return live


def test_a_lost_server_takes_its_jobs_down_and_they_start_elsewhere() -> None:
    live = submitted(4)
    (start,) = live.step(0).starts
    assert start.to.gpus == ("s0/0", "s0/1", "s0/2", "s0/3")
    live.handle(ServerLost(SECOND, "s0"))
    (move,) = live.step(SECOND).moves
    assert (move.to.gpus, move.reason, move.restarts) == (("s1/0", "s1/1", "s1/2", "s1/3"), "server 's0' is lost", True)
    live.handle(ServerDrained(SECOND, "s1"))
    (stop,) = live.step(SECOND).stops
    assert (stop.job, stop.reason) == ("j0", "server 's1' is drained")
    live.handle(ServerBack(2 * SECOND, "s0"))
    (start,) = live.step(2 * SECOND).starts
    assert start.to.gpus[0] == "s0/0"


def test_progress_goes_back_to_the_last_report_when_a_server_is_lost_and_not_when_it_is_drained() -> None:
    for event, kept in ((ServerDrained(30 * SECOND, "s0"), 300), (ServerLost(30 * SECOND, "s0"), 200)):
        live = submitted(4)
        live.step(0)
        live.handle(JobProgressed(10 * SECOND, "j0", 100))
        live.handle(JobProgressed(20 * SECOND, "j0", 200))  # 10 a second
        live.handle(event)
        (job,) = live.state()["jobs"]
        assert job["figures"]["done"] == kept * 10**15


def test_a_job_that_spans_servers_stops_when_no_route_joins_them() -> None:
    live = submitted(8)
    live.step(0)
    live.handle(LinkDown(SECOND, "l1"))
    change = live.step(SECOND)
    assert [stop.reason for stop in change.stops] == ["no route joins its servers while link 'l1' is down"]
    assert not live.step(2 * SECOND).starts
    live.handle(LinkUp(3 * SECOND, "l1"))
    assert [start.to.job for start in live.step(3 * SECOND).starts] == ["j0"]


def test_a_job_that_stops_in_any_case_is_stopped_and_started_on_the_same_gpus() -> None:
    """A job is chosen for one that is then cancelled: when its grace is over, it stops all the same."""
    live = LiveScheduler(star("a"), "priority:grace=60", restart_us=0)
    for second, name, gpus, priority in ((0, "low", 4, 0), (10, "high", 2, 1)):
        live.handle(JobSubmitted(second * SECOND, TraceJob(name, second * SECOND, "m", gpus, 900, priority=priority)))
        live.step(second * SECOND)
    live.handle(JobCancelled(20 * SECOND, "high"))
    assert not live.step(20 * SECOND).starts
    change = live.step(120 * SECOND)
    assert [(stop.job, stop.reason) for stop in change.stops] == [("low", "policy 'priority' stops it")]
    assert [(start.to.job, len(start.to.gpus)) for start in change.starts] == [("low", 4)]
    assert not change.moves and not live.step(180 * SECOND).starts


def test_jobs_that_share_gpus_are_told_of_each_other() -> None:
    live = submitted(4, 4, policy="jigsaw:depth=free", servers=1)
    first, second = live.step(0).starts
    assert (first.to.partners, second.to.partners) == ((second.to.job,), (first.to.job,))
    assert "share GPUs" in first.reason
    live.handle(JobFinished(SECOND, "j0"))
    (move,) = live.step(SECOND).moves
    assert move.to.partners == () and not move.restarts


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (JobSubmitted(5, TraceJob("j0", 0, "small", 1, 1)), "duplicate-name $.job.name"),
        (JobSubmitted(5, TraceJob("b", 0, "small", 9, 1)), "does-not-fit $.job.gpus"),
        (JobSubmitted(5, TraceJob("b", 0, "other", 1, 1)), "unsupported $.job"),
        (JobProgressed(5, "j0", -1), "out-of-range $.iterations"),
        (ServerLost(5, "x"), "unknown-name $.server"),
        (LinkDown(5, "x"), "unknown-name $.link"),
        (JobFinished(4, "j0"), "wrong-order $.time_us"),
    ],
)
def test_what_cannot_be_is_told_by_its_code(event: Any, expected: str) -> None:
    live = submitted(4)
    live.step(5)
    with misuse(expected):
        live.handle(event)


def test_a_state_is_restored_at_the_beginning_alone() -> None:
    state = in_json(submitted(4).state())
    for event in (ServerAdded(0, replace(star("v").servers[0], name="more")), ServerLost(0, "s0"), LinkDown(0, "l0")):
        live = submitted()
        live.handle(event)
        before = in_json(live.state())
        with misuse("wrong-order"):
            live.restore(state)
        assert in_json(live.state()) == before
    live = submitted()
    live.restore(state)
    with misuse("wrong-order"):
        live.restore(state)


def test_all_problems_of_a_state_are_told() -> None:
    live = submitted(4, 2)
    live.step(0)
    state = in_json(live.state())
    wrong, twice = in_json(state), in_json(state)
    wrong["lost"], wrong["jobs"][0]["reported"], wrong["news"]["ended"] = ["x"], 10**30, [0]
    with pytest.raises(InvalidInputError) as raised:
        submitted().restore(wrong)
    assert [problem.path for problem in raised.value.problems] == ["$.lost", "$.jobs[0]", "$.news.ended"]
    told = [problem.message for problem in raised.value.problems]
    assert (
        told[0] == "'x' is no server of the cluster"
        and told[2] == "0 is no job that has ended or is kept from the policy"
    )
    with refuses("outdated $.format"):
        submitted().restore({**wrong, "format": "jigsaw-live/1"})
    twice["shares"][1]["gpus"] = twice["shares"][0]["gpus"][:2]
    changed = {
        "which is down": {"lost": ["s0"]},
        "more": {"policy": {"more": 1}},
        "servers": {"inputs": "", "servers": 3},
    }
    for message, tree in {
        "is given to": twice,
        "object": [],
        **{m: {**state, **c} for m, c in changed.items()},
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            submitted().restore(tree)


class Wayward(Stateless):
    """First in, first out by one GPU each, unless it is told to fail or to wait."""

    name, display_name = "wayward", "fails or waits as the test says"
    options: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self) -> None:
        self.failing: type[BaseException] | None = None
        self.bad: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> Wayward:
        return self

    def decide(self, observation: Observation) -> Decision:
        assert self.gate.wait(20)
        if self.failing is not None:
            raise self.failing("lost my way")
        bad = {active.job.name for active in observation.jobs.values()} & self.bad
        assert not bad, f"cannot bear {bad}"
        up = iter(gpu for gpu in range(8) if gpu not in observation.down)
        return Decision(tuple(Share((index,), (gpu,)) for index, gpu in zip(observation.jobs, up, strict=False)))


@pytest.fixture
def wayward(monkeypatch: pytest.MonkeyPatch) -> Wayward:
    policy = Wayward()
    monkeypatch.setattr(live_scheduler, "choose", lambda text: (policy, {}))
    return policy


def test_when_a_policy_fails_what_runs_goes_on_without_what_is_lost(wayward: Wayward) -> None:
    live = submitted(1, 1, 1, 1, 1)
    assert len(live.step(0).starts) == 5
    wayward.failing = LookupError
    live.handle(ServerLost(SECOND, "s1"))
    change = live.step(SECOND)
    assert carries(change.failure, "lost")
    assert [stop.job for stop in change.stops] == ["j4"]
    assert not change.moves and change.wake_us == 2 * SECOND
    wayward.failing = None
    live.handle(ServerBack(SECOND, "s1"))
    assert [start.to.job for start in live.step(2 * SECOND).starts] == ["j4"]


@pytest.mark.parametrize(("kind", "budget_s"), [(KeyboardInterrupt, None), (SystemExit, 20.0)])
def test_a_step_that_is_interrupted_can_be_made_again(
    wayward: Wayward, kind: type[BaseException], budget_s: float | None
) -> None:
    live = submitted(1, 1)
    wayward.failing = kind
    with pytest.raises(kind):
        live.step(0, budget_s)
    wayward.failing = None
    assert [start.to.job for start in live.step(SECOND, budget_s).starts] == ["j0", "j1"]


class _Wordless(BaseException):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("kind", [MemoryError, StopIteration, RecursionError, OSError, _Wordless, Warning])
@pytest.mark.parametrize("budget_s", [None, 20.0])
def test_whatever_else_a_policy_raises_is_a_failure_that_names_it(
    wayward: Wayward, kind: type[BaseException], budget_s: float | None
) -> None:
    live = submitted(1, 1)
    wayward.failing = kind
    assert live.step(0, budget_s).failure.startswith(f"policy 'wayward': {kind.__name__}")
    wayward.failing = None
    assert [start.to.job for start in live.step(SECOND, budget_s).starts] == ["j0", "j1"]


@pytest.mark.parametrize(
    "said",
    [
        None,
        Decision((Share((0,), (0.0,)),)),  # type: ignore[arg-type]
        Decision([Share((0,), (0,))]),  # type: ignore[arg-type]
        Decision((Share((0,), (0, 1)),)),
        Decision((Share((0,), (-1,)),)),
        Decision((), 1.5),  # type: ignore[arg-type]
        Decision((Share((0,), (0,), slowdown=float("nan")),)),
        Decision((Share((0,), (0,), ("full",)),)),  # type: ignore[arg-type]
    ],
)
def test_a_decision_that_is_none_is_a_failure(wayward: Wayward, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    live = submitted(1)
    with monkeypatch.context() as patched:
        patched.setattr(Wayward, "decide", lambda self, moment: said)
        assert live.step(0).failure.startswith("policy 'wayward': ")
    fresh = submitted()
    fresh.restore(in_json(live.state()))
    assert live.step(SECOND).starts == fresh.step(SECOND).starts != ()


@pytest.mark.parametrize("bad", [{"j1"}, {"j0", "j3"}, {"j0", "j1", "j2", "j3"}])
def test_the_jobs_that_a_policy_fails_with_are_put_aside_and_no_others(wayward: Wayward, bad: set[str]) -> None:
    wayward.bad = bad
    live = submitted(1, 1, 1, 1)
    change = live.step(0)
    assert {start.to.job for start in change.starts} == {"j0", "j1", "j2", "j3"} - bad
    assert all(f"job {name!r} is put aside: policy 'wayward': AssertionError" in change.failure for name in bad)
    live.handle(JobSubmitted(SECOND, TraceJob("good", 0, "small", 1, 10)))
    assert not live.step(SECOND).failure
    assert "good" in live.state()["told"][-1]["job"]
    name = min(bad)
    assert live.explain(name).kind == "aside" and "cannot bear" in live.explain(name).reason
    again = submitted()
    again.restore(in_json(live.state()))
    for one in (live, again):
        wayward.bad = set()
        one.handle(PriorityChanged(2 * SECOND, name, 2))
        assert [start.to.job for start in one.step(2 * SECOND).starts] == [name]


def test_a_job_that_a_policy_fails_with_only_later_stops_and_no_other(wayward: Wayward) -> None:
    live = submitted(1, 1, 1)
    live.step(0)
    wayward.bad = {"j1"}
    live.handle(JobSubmitted(SECOND, TraceJob("good", 0, "small", 1, 10)))
    change = live.step(SECOND)
    assert [(stop.job, stop.reason[:18]) for stop in change.stops] == [("j1", "it is put aside: p")]
    assert "good" in {start.to.job for start in change.starts}
    live.handle(JobCancelled(2 * SECOND, "j1"))
    assert not live.step(2 * SECOND).failure


def test_a_late_decision_is_taken_by_a_later_step_as_far_as_it_holds(wayward: Wayward) -> None:
    journal: list[Any] = []
    wayward.gate.clear()
    live = submitted(1, 1, 1, 1, 1, journal=journal.append)
    changes = [live.step(0, budget_s=0.0)]
    assert changes[0].late and not changes[0].starts
    live.handle(JobFinished(SECOND, "j1"))
    live.handle(ServerLost(SECOND, "s1"))
    changes.append(live.step(SECOND, budget_s=0.001))
    assert changes[1].late
    wayward.gate.set()
    changes.append(live.step(SECOND, budget_s=20.0))
    assert [start.to.job for start in changes[2].starts] == ["j0", "j2", "j3"]
    assert changes[2].wake_us == SECOND  # j4 was to run on what is lost: the policy is to be asked again
    changes.append(live.step(SECOND, budget_s=20.0))
    assert [start.to.job for start in changes[3].starts] == ["j4"]
    again = LiveScheduler(star("v", "v"), models=MODELS, round_us=0)
    assert [change for entry in in_json(journal) if (change := again.replay(entry)) is not None] == changes


def test_a_late_decision_leaves_alone_what_has_been_started_meanwhile(wayward: Wayward) -> None:
    journal: list[Any] = []
    wayward.gate.clear()
    live = submitted(1, 1, 1, journal=journal.append)
    changes = [live.step(0, budget_s=0.0)]
    live.handle(JobRunning(SECOND, TraceJob("new", 0, "small", 1, 10), ("s0/0",), 0))  # where the policy puts j0
    live.handle(JobRunning(SECOND, TraceJob("j1", 0, "small", 1, 1000), ("s1/0",), 0))  # which the policy puts on s0/1
    wayward.gate.set()
    changes.append(live.step(SECOND, budget_s=20.0))
    assert [(start.to.job, start.to.gpus) for start in changes[1].starts] == [("j2", ("s0/2",))]
    assert not changes[1].stops and not changes[1].moves and not changes[1].failure
    assert runs(live) == {"new": ("s0/0",), "j1": ("s1/0",), "j2": ("s0/2",)}
    again = LiveScheduler(star("v", "v"), models=MODELS, round_us=0)
    assert [change for entry in in_json(journal) if (change := again.replay(entry)) is not None] == changes
    assert in_json(again.state()) == in_json(live.state())
    again = LiveScheduler(star("v", "v"), models=MODELS, round_us=0)
    again.restore(in_json(live.state()))
    assert again.step(SECOND).moves == live.step(SECOND).moves
