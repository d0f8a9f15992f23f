"""Why jobs of a live scheduler wait or run as they do: what was built in is named, and what is named starts the job."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobSubmitted,
    LinkDown,
    LinkUp,
    LiveExplanation,
    LiveScheduler,
    PriorityChanged,
    QuotaChanged,
    ServerAdded,
    ServerBack,
    ServerDrained,
    ServerLost,
)
from jigsaw_opt.scheduling.allocation import Decision
from jigsaw_opt.scheduling.live import scheduler as live_scheduler
from jigsaw_opt.scheduling.policy import ClusterSetting, Observation, Stateless
from tests.refusals import carries
from tests.scheduling.live_cases import MODELS, SECOND, star


def job(name: str, gpus: int, iterations: int = 1000, model: str = "m") -> JobSubmitted:
    return JobSubmitted(0, TraceJob(name, 0, model, gpus, iterations))


def live(policy: str = "fifo", cluster: Any = None, **more: Any) -> LiveScheduler:
    return LiveScheduler(cluster or star("v", "v"), policy, round_us=0, **more)


def told(scheduler: LiveScheduler, *events: Any) -> LiveScheduler:
    """The scheduler, a step after each event."""
    for event in events:
        scheduler.handle(event)
        scheduler.step(event.time_us)
    return scheduler


def runs_after(scheduler: LiveScheduler, name: str, *events: Any) -> bool:
    for event in events:
        scheduler.handle(event)
    return any(start.to.job == name for start in scheduler.step(events[-1].time_us).starts)


ALL = job("b", 8)
SITUATIONS: dict[str, tuple[LiveScheduler, str, tuple[Any, ...]]] = {
    "nothing free": (told(live(), job("a", 8), ALL), "gpus", (JobFinished(0, "a"),)),
    "failure": (told(live(), ServerLost(0, "s1"), ALL), "failure", (ServerBack(0, "s1"),)),
    "drained": (told(live(), ServerDrained(0, "s0"), ALL), "failure", (ServerBack(0, "s0"),)),
    "link": (told(live(), LinkDown(0, "l1"), ALL), "link", (LinkUp(0, "l1"),)),
    "quota": (told(live(), QuotaChanged(0, "", 4), job("a", 4), job("b", 2)), "quota", (QuotaChanged(0, "", 6),)),
    "policy": (told(live(), job("a", 4), job("wide", 8), job("b", 4)), "order", (JobCancelled(0, "wide"),)),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_keeps_a_job_waiting_is_named_and_starts_it_when_it_goes(name: str) -> None:
    scheduler, kind, events = SITUATIONS[name]
    found = scheduler.explain("b")
    assert (found.kind, found.remedies[0].events, found.assignment) == (kind, events, None)
    assert found.complete and "starts" in found.reason and str(found).startswith(f"b: {found.reason}")
    assert runs_after(scheduler, "b", *found.remedies[0].events)


def test_a_job_that_the_policy_was_not_asked_about() -> None:
    scheduler = live()
    scheduler.handle(job("a", 1))
    assert scheduler.explain("a").kind == "undecided"
    assert scheduler.step(0).starts


def test_a_task_beyond_the_limit_of_its_array_is_told_the_limit() -> None:
    tasks = [TraceJob(f"t{k}", 0, "m", 1, 100 + k, array="t", array_limit=2) for k in range(4)]
    scheduler = told(live(), *(JobSubmitted(0, task) for task in tasks))
    found = scheduler.explain("t2")
    assert found.kind == "array" and carries(found.reason, "array t", "2", "job t0 ends")
    assert found.remedies[0].events == (JobFinished(0, "t0"),)
    found = scheduler.explain("t3")
    assert found.kind == "array" and carries(found.reason, "array t", "2", "have left")
    assert runs_after(scheduler, "t3", *found.remedies[0].events)


def test_a_policy_that_decides_again_by_itself_is_told_with_the_time() -> None:
    scheduler = told(live("las"), job("a", 8, iterations=36_000), job("b", 1))
    found = scheduler.explain("b")
    first, second = found.remedies[:2]
    assert (first.kind, first.stopped, second.kind) == ("round", ("a",), "gpus")
    assert first.expected_us is not None and second.expected_us is not None and first.expected_us < second.expected_us
    change = scheduler.step(first.expected_us)
    assert [start.to.job for start in change.starts] == ["b"]


def test_priority_puts_a_job_before_one_in_the_background() -> None:
    scheduler = told(live("separate"), job("back", 8, iterations=500), job("b", 8))
    found = scheduler.explain("b")
    assert [(one.kind, one.stopped) for one in found.remedies] == [("gpus", ()), ("priority", ("back",))]
    assert found.remedies[0].expected_us == 500 * SECOND
    assert runs_after(scheduler, "b", *found.remedies[1].events)


def test_memory_that_free_gpus_lack() -> None:
    """Large servers are taken; the small one has less memory than the model's state and activations."""
    cluster = star("large", "small")
    servers = cluster.servers[0], replace(cluster.servers[1], gpu_memory=10**6)
    model = MODELS["small"]
    times = {"large": 10_000, "small": 10_000}
    segments = tuple(replace(segment, forward_us=times, backward_us=times) for segment in model.segments)
    scheduler = live("jigsaw", replace(cluster, servers=servers), models={"m": replace(model, segments=segments)})
    found = told(scheduler, job("a", 4), job("b", 4)).explain("b")
    assert found.kind == "memory" and "memory" in found.reason
    assert found.remedies[0].events == (JobFinished(0, "a"),) and runs_after(scheduler, "b", JobFinished(0, "a"))


def test_what_none_of_it_alone_brings_about_is_put_together() -> None:
    scheduler = told(live(), ServerLost(0, "s0"), job("a", 4), job("b", 8), job("c", 8))
    found = scheduler.explain("c")
    (remedy,) = found.remedies
    assert remedy.events == (ServerBack(0, "s0"), JobFinished(0, "a"), JobCancelled(0, "b"))
    assert carries(remedy.text, "s0", "back", "jobs a and b") and found.reason.endswith(f"{remedy.text}.")
    assert runs_after(scheduler, "c", *remedy.events)


@pytest.mark.parametrize("depth", ["free", "staircase"])
def test_a_partner_and_partial_depth_are_told_with_what_they_do(depth: str) -> None:
    """Jobs of two workers take turns with compute and exchange; the speed alone is the next step's."""
    scheduler = live(f"jigsaw:depth={depth}", star("v", "v", gpus=1), models=MODELS)
    for name in ("a", "b"):
        scheduler.handle(job(name, 2, model="small"))
    scheduler.step(0)
    found = scheduler.explain("a")
    assert found.assignment is not None and found.assignment.partners == ("b",) and found.kind == ""
    factors = {one.kind: one.factor for one in found.influences}
    assert factors["partner"] > 1.3 and factors["level rule"] < 0.9
    alone = told(scheduler, JobFinished(0, "b")).explain("a")
    assert alone.assignment is not None and alone.assignment.partners == ()
    assert "partner" not in {one.kind for one in alone.influences}


class _Gated(Stateless):
    """Starts no job, and in the thread that explains waits until it may go on."""

    name, display_name = "gated", "waits in one thread"
    options: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self) -> None:
        self.entered, self.gate = threading.Event(), threading.Event()

    def start(self, setting: ClusterSetting, options: Mapping[str, str]) -> _Gated:
        return self

    def decide(self, observation: Observation) -> Decision:
        if threading.current_thread().name == "explaining":
            self.entered.set()
            assert self.gate.wait(20)
        return Decision(observation.shares)


def test_explaining_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, found = _Gated(), list[LiveExplanation]()
    monkeypatch.setattr(live_scheduler, "choose", lambda text: (policy, {}))
    scheduler = live("gated")
    scheduler.handle(job("a", 1))
    thread = threading.Thread(target=lambda: found.append(scheduler.explain("a")), name="explaining")
    thread.start()
    assert policy.entered.wait(20)
    # From here on the explaining thread stands still, so these would wait for ever if it held them up.
    scheduler.handle(job("b", 1))
    assert scheduler.step(0).time_us == 0 and len(scheduler.state()["jobs"]) == 2
    scheduler.handle(JobCancelled(SECOND, "a"))
    assert scheduler.explain("b").complete and not found
    policy.gate.set()
    thread.join()
    assert (found[0].job, found[0].kind) == ("a", "unknown")


@pytest.mark.parametrize(("policy", "unread"), [("fifo", 2), ("las", 2), ("fill", 1), ("separate", 1)])
def test_a_priority_that_the_policy_does_not_read_is_told_at_the_event(policy: str, unread: int) -> None:
    scheduler = LiveScheduler(star("v"), policy, models=MODELS)
    assert scheduler.handle(JobSubmitted(0, TraceJob("a", 0, "small", 1, 10))) == ()
    told = scheduler.handle(JobSubmitted(0, TraceJob("b", 0, "small", 1, 10, weight=3, foreground=True)))
    assert len(told) == unread and all(policy in one and "'b'" in one for one in told)
    assert scheduler.handle(PriorityChanged(1, "b", 3, True)) == ()
    assert scheduler.handle(PriorityChanged(1, "b", 4, False)) == told
    assert scheduler.handle(JobCancelled(1, "b")) == ()


@pytest.mark.parametrize("policy", ["fifo", "srtf", "sjf_bco"])
def test_the_first_links_stop_jobs_whose_servers_they_do_not_join(policy: str) -> None:
    cluster = replace(star("v", "v"), switches=(), links=())
    scheduler = told(live(policy, cluster), job("wide", 8))
    new = replace(cluster.servers[0], name="new")
    scheduler.handle(ServerAdded(SECOND, new, (Link("l", ("new", "s1"), 10**9, 10),)))
    change = scheduler.step(SECOND)
    assert change.failure == "" and not change.stops
    (move,) = change.moves  # to what the link joins
    assert {gpu.partition("/")[0] for gpu in move.to.gpus} == {"new", "s1"}
    assert carries(move.reason, "'new'", "brought")


def test_an_event_without_effect_is_told() -> None:
    scheduler = live()
    assert scheduler.handle(ServerBack(0, "s0")) == ("server 's0' is in use already",)
    assert scheduler.handle(LinkUp(0, "l0")) == ("link 'l0' is up already",)
    for event in (ServerLost(0, "s0"), LinkDown(0, "l0")):
        assert scheduler.handle(event) == () and len(scheduler.handle(event)) == 1
    assert scheduler.handle(ServerDrained(0, "s0")) == ("server 's0' is lost or drained already",)
    assert scheduler.handle(JobSubmitted(0, TraceJob("a", 5, "m", 1, 10))) == ()
    assert carries(scheduler.handle(JobProgressed(0, "a", 1))[0], "does")
