"""Events that cannot be: one error with every problem, and nothing has changed."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jigsaw_opt.errors import InvalidInputError, UsageError
from jigsaw_opt.problem.cluster import Link, Server
from jigsaw_opt.problem.rules.keyed import altered
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobSubmitted,
    LinkDown,
    LiveScheduler,
    PriorityChanged,
    QuotaChanged,
    ServerAdded,
    ServerLost,
    decode_event,
    encode_event,
)
from tests.refusals import misuse
from tests.scheduling.live_cases import CASES, in_json, made, star
from tests.scheduling.live_hostility import Hostility, good_job_starts


def job(**fields: Any) -> TraceJob:
    return TraceJob(**{"name": "bad", "submit_us": 0, "model": "m", "gpus": 1, "iterations": 5, **fields})


def server(**fields: Any) -> Server:
    return altered(Server("new", "v", 4, 10**9, 1), **fields)


def link(**fields: Any) -> Link:
    return altered(Link("to-new", ("new", "switch"), 1), **fields)


WRONG: list[tuple[Any, str]] = [
    *((JobSubmitted(1, job(gpus=gpus)), "$.job.gpus") for gpus in (0, -1, 2.0, True, None, "2", 2**53, 10**5000)),
    *((JobSubmitted(1, job(iterations=count)), "$.job.iterations") for count in (0, -1, 1.5, math.nan, 2**53)),
    *((JobSubmitted(1, job(weight=weight)), "$.job.weight") for weight in (0, 0.5, math.inf, None, True)),
    *((JobSubmitted(1, job(name=name)), "$.job.name") for name in (None, "", 5, [], {}, "x" * 10**6, "\ud800")),
    *((JobSubmitted(1, job(model=name)), "$.job.model") for name in (None, "", 5, ["m"])),
    (JobSubmitted(1, job(submit_us=-5)), "$.job.submit_us"),
    (JobSubmitted(1, job(min_gpus=8, max_gpus=2)), "$.job.gpus"),
    (JobSubmitted(1, job(min_gpus=-1)), "$.job.min_gpus"),
    (JobSubmitted(1, job(batch_size=0)), "$.job.batch_size"),
    (JobSubmitted(1, job(foreground=1)), "$.job.foreground"),
    *((JobSubmitted(1, job(gpu_types=names)), "$.job.gpu_types") for names in ((), "v", ("v|w",), (5,), ({},))),
    (JobSubmitted(1, job(after=("",))), "$.job.after"),
    (JobSubmitted(1, job(preemptible=0)), "$.job.preemptible"),
    (JobSubmitted(1, job(array_limit=0)), "$.job.array_limit"),
    (JobSubmitted(1, job(iterations=None)), "$.job"),
    (JobSubmitted(1, job(gpus=99)), "$.job.gpus"),
    (JobSubmitted(1, job(name="a")), "$.job.name"),
    *((JobSubmitted(1, value), "$.job") for value in (None, {}, encode_event(JobSubmitted(1, job()))["job"], "bad")),  # type: ignore[arg-type]
    *((JobSubmitted(1, job(), queue), "$.queue") for queue in (None, 5, "\udfff")),  # type: ignore[arg-type]
    *((JobFinished(time, "a"), "$.time_us") for time in (1.5, math.inf, math.nan, "1", None, True, -1, 2**60, 0)),  # type: ignore[arg-type]
    *((JobCancelled(1, name), "$.job") for name in (None, ["a"], {}, 5, "", "no")),  # type: ignore[arg-type]
    *((JobProgressed(1, "a", done), "$.iterations") for done in (-1, math.nan, math.inf, 1e30, None, "1", True)),  # type: ignore[arg-type]
    *((PriorityChanged(1, "a", weight), "$.weight") for weight in (0, -1, 1.5, None, True, 2**53)),  # type: ignore[arg-type]
    (PriorityChanged(1, "a", 1, 1), "$.foreground"),  # type: ignore[arg-type]
    *((QuotaChanged(1, "", gpus), "$.gpus") for gpus in (-1, 1.5, "4", True)),  # type: ignore[arg-type]
    *((ServerAdded(1, server(gpus=gpus)), "$.server.gpus") for gpus in (0, -1, 1.0, 2**53, 10**6)),
    *((ServerAdded(1, server(name=name)), "$.server.name") for name in (None, "", "a/b", "s0", "switch", {})),
    (ServerAdded(1, server(gpu_memory=0)), "$.server.gpu_memory"),
    (ServerAdded(1, server(fabric_bandwidth=0)), "$.server.fabric_bandwidth"),
    *((ServerAdded(1, value), "$.server") for value in (None, "s9", {})),  # type: ignore[arg-type]
    *((ServerAdded(1, server(), links), "$.links") for links in (None, 5, "ab", {})),  # type: ignore[arg-type]
    (ServerAdded(1, server(), (None,)), "$.links[0]"),  # type: ignore[arg-type]
    (ServerAdded(1, server(), (link(bandwidth=0),)), "$.links[0].bandwidth"),
    *((ServerAdded(1, server(), (link(ends=ends),)), "$.links[0].ends") for ends in (("new",), None, "ab", ())),
    *(
        (ServerAdded(1, server(), (link(ends=ends),)), "$.links[0].ends")
        for ends in (("new", "new"), ("new", "no"), ("s0", "switch"))
    ),
    (ServerAdded(1, server(), (link(), link(ends=("new", "s0")))), "$.links[1].name"),
    (ServerLost(1, None), "$.server"),  # type: ignore[arg-type]
    (LinkDown(1, []), "$.link"),  # type: ignore[arg-type]
    *((value, "$") for value in (None, {}, "finish", JobFinished, encode_event(JobFinished(1, "a")))),
]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_what_cannot_be_is_one_error_with_its_path_and_changes_nothing(policy: str) -> None:
    journal: list[Any] = []
    live = LiveScheduler(star("v", "v"), policy, round_us=0, journal=journal.append)
    live.handle(JobSubmitted(1, TraceJob("a", 0, "m", 1, 5)))
    live.step(1)
    before, entries = in_json(live.state()), list(journal)
    for event, path in WRONG:
        with pytest.raises(UsageError) as raised:
            live.handle(event)
        (problem,) = raised.value.args
        assert problem.startswith(f"{path}: ") and problem.isprintable() and len(problem) < 3000
        assert in_json(live.state()) == before and journal == entries
    live.handle(JobSubmitted(2, TraceJob("good", 0, "m", 1, 5)))
    assert [start.to.job for start in live.step(3).starts] == ["good"]


def test_all_problems_of_an_event_are_told_together() -> None:
    live = LiveScheduler(star("v"), "fifo")
    live.handle(JobSubmitted(5, TraceJob("a", 0, "m", 1, 5)))
    with pytest.raises(UsageError) as raised:
        live.handle(JobSubmitted(4, job(name="a", gpus=0, weight=0), None))  # type: ignore[arg-type]
    paths = [problem.partition(": ")[0] for problem in raised.value.args]
    assert paths == ["$.job.gpus", "$.job.weight", "$.queue", "$.time_us", "$.job.name"]
    with pytest.raises(UsageError) as raised:
        live.handle(ServerAdded(5, server(gpus=0), (link(bandwidth=0), link(ends=("new", "new")))))
    assert len(raised.value.args) == 2


def test_a_journal_entry_is_checked_as_an_event_is() -> None:
    tree = in_json(encode_event(JobSubmitted(1, job())))
    for changes, path in (
        ({"time_us": 1.5}, "$.time_us"),
        ({"queue": None}, "$.queue"),
        ({"job": {}}, "$.job"),
        ({"job": {**tree["job"], "gpus": 2.0}}, "$.job.gpus"),
        ({"event": "other"}, "$.event"),
        ({"event": []}, "$.event"),
        ({"more": 1}, "$.more"),
    ):
        with pytest.raises(InvalidInputError) as raised:
            decode_event({**tree, **changes})
        assert {problem.path for problem in raised.value.problems} == {path}


def test_a_step_takes_only_times() -> None:
    live = LiveScheduler(star("v"), "fifo")
    before = live.state()
    for now_us, expected in ((1.5, "wrong-type"), (True, "wrong-type"), (-1, "out-of-range"), (2**60, "out-of-range")):
        with misuse(f"{expected} now_us"):
            live.step(now_us)
    with misuse("wrong-type budget_s"):
        live.step(1, "1")
    assert live.state() == before


def test_a_server_that_the_performance_model_has_no_figures_for_changes_nothing() -> None:
    live = made("sia")
    before = in_json(live.state())
    with misuse("unsupported server", naming=["'k80'"]):
        live.handle(ServerAdded(1, server(gpu_type="k80")))
    assert in_json(live.state()) == before and len(live.cluster.servers) == 3


def test_what_a_job_states_comes_back_from_a_journal() -> None:
    told = job(gpu_types=("v", "w"), ran_on="w", preemptible=False, after=("a",), array="b", array_limit=2)
    event = JobSubmitted(1, told)
    assert decode_event(in_json(encode_event(event))) == event


def hold_out(text: str, seed: int, count: int) -> None:
    """Try so many events and steps, and assert all that must hold."""
    draw = random.Random(seed)
    hostility, journal, again = Hostility(text, draw), list[Any](), made(text)
    live = made(text, journal=lambda entry: journal.append(in_json(entry)))
    state, done = in_json(live.state()), 0
    for _ in range(count):
        event = hostility.event()
        try:
            live.handle(event)
        except UsageError:
            assert in_json(live.state()) == state and len(journal) == done
            continue
        hostility.now_us = max(hostility.now_us, live.state()["time_us"])
        state = in_json(live.state())
        if draw.random() < 0.5:
            restored = made(text)
            restored.restore(state)
            assert in_json(restored.state()) == state
            now_us = hostility.step_us()
            if now_us > 2**53 - 1:
                break
            change = live.step(now_us)
            assert not change.failure, change.failure
            assert restored.step(now_us) == change
            state = in_json(live.state())
            assert in_json(restored.state()) == state
        for entry in journal[done:]:
            again.replay(entry)
        done = len(journal)
        if draw.random() < 0.1 and state["jobs"]:
            name = draw.choice(state["jobs"])["trace"]["name"]
            assert in_json(live.explain(name, 0.0).plain())["job"] == name and in_json(live.state()) == state
        assert in_json(again.state()) == state
    if hostility.now_us < 2**52:
        assert good_job_starts(live, hostility, text)


@pytest.mark.parametrize("text", [text for text in CASES if not text.startswith("jigsaw")])
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_any_events_leave_it_whole(text: str, seed: int) -> None:
    hold_out(text, seed, 40)
