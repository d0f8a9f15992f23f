"""A live scheduler that is told what runs in truth: it takes jobs over, and corrects where it believes them to be."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.cluster import Link
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import (
    JobCancelled,
    JobFinished,
    JobProgressed,
    JobRunning,
    JobSubmitted,
    LinkDown,
    LiveScheduler,
    QuotaChanged,
    ServerAdded,
    ServerDrained,
    ServerLost,
)
from tests.refusals import carries, misuse
from tests.scheduling.live_cases import CASES, MODELS, SECOND, in_json, made, runs, star

_NEVER_MOVE = {"fifo", "sjf_bco", "backfill:estimates=recent", "multifactor:estimates=recent"}


def job(name: str = "a", gpus: int = 2, **more: Any) -> TraceJob:
    return TraceJob(**{"name": name, "submit_us": 0, "model": "small", "gpus": gpus, "iterations": 1000, **more})


def made_of(policy: str = "fifo", servers: int = 2, **more: Any) -> LiveScheduler:
    return LiveScheduler(star(*"v" * servers), policy, models=MODELS, round_us=0, **more)


def adopted(text: str, seed: int) -> tuple[LiveScheduler, dict[str, tuple[str, ...]]]:
    """A scheduler of one of the `CASES` that is told of a job on each server, and these jobs."""
    make, cluster, _ = CASES[text]
    live, draw, where = made(text), random.Random(seed), dict[str, tuple[str, ...]]()
    for server in range(len(cluster.servers)):
        names = [cluster.gpus.names[gpu] for gpu in cluster.gpus.of_server[server]]
        for _ in range(20):  # until a job is drawn that can run there
            one = make(f"r{server}", draw)
            if one.name in where or one.gpus > len(names):
                continue
            with suppress(UsageError):
                live.handle(JobRunning(100 * SECOND, one, tuple(names[: one.gpus]), 40 * SECOND, 10.0))
                where[one.name] = tuple(names[: one.gpus])
    return live, where


@pytest.mark.parametrize("text", CASES)
def test_under_every_policy_adopted_jobs_run_where_they_are_until_the_policy_decides_otherwise(text: str) -> None:
    live, where = adopted(text, 3)
    assert runs(live) == where and len(where) >= 2
    again, again_told = made(text), made(text)
    again.restore(in_json(live.state()))
    for one in (live, again):
        one.handle(JobSubmitted(100 * SECOND, CASES[text][0]("new", random.Random(9))))
    change = live.step(120 * SECOND)
    assert not change.failure and again.step(120 * SECOND) == change
    assert not {start.to.job for start in change.starts} & where.keys()
    told = {stop.job: stop.gpus for stop in change.stops} | {move.to.job: move.before.gpus for move in change.moves}
    assert all(where[name] == gpus for name, gpus in told.items())
    if text in _NEVER_MOVE:
        assert not told and {name: runs(live)[name] for name in where} == where
    again_told.restore(in_json(live.state()))
    assert in_json(again_told.state()) == in_json(live.state())


@pytest.mark.parametrize("text", CASES)
def test_under_every_policy_a_job_is_corrected_that_waits_or_runs_elsewhere(text: str) -> None:
    make, cluster, _ = CASES[text]
    live, draw, jobs = made(text), random.Random(4), dict[str, TraceJob]()
    for k in range(6):
        jobs[f"j{k}"] = make(f"j{k}", draw)
        live.handle(JobSubmitted(0, jobs[f"j{k}"]))
    live.step(60 * SECOND)
    now_us = 60 * SECOND
    for name in list(jobs):
        now_us += 10 * SECOND
        held = {gpu for other, gpus in runs(live).items() if other != name for gpu in gpus}
        free = [gpu for gpu in cluster.gpus.names if gpu not in held]
        gpus = tuple(free[-jobs[name].gpus :])
        if len(gpus) < jobs[name].gpus:
            live.handle(JobCancelled(now_us, name))
            live.step(now_us)
            continue
        before = live.state()
        live.handle(JobRunning(now_us, jobs[name], gpus, now_us - SECOND))
        assert runs(live)[name] == gpus and live.state() != before
        state = in_json(live.state())
        live = made(text)
        live.restore(state)
        change = live.step(now_us)
        assert not change.failure
        assert name not in {start.to.job for start in change.starts}
        assert all(stop.gpus == gpus for stop in change.stops if stop.job == name)
        if text in _NEVER_MOVE:
            assert runs(live)[name] == gpus


def test_an_adopted_job_has_its_progress_and_the_time_that_it_has_run() -> None:
    live = made_of()
    assert live.handle(JobRunning(100, job(submit_us=5), ("s1/2", "s1/0"), 40, 20.0, "q")) == ()
    change = live.step(100)
    assert not change.starts and not change.stops and not change.moves
    (one,) = live.state()["jobs"]
    figures = {"job": 0, "done": 20 * 10**15, "gpu_us": 120, "run_us": 60, "starts": 1}
    assert one["figures"] == figures and one["trace"]["submit_us"] == 5 and one["queue"] == "q"
    assert runs(live) == {"a": ("s1/0", "s1/2")}
    live.handle(JobProgressed(200, "a", 120.0))
    live.handle(ServerLost(300, "s1"))
    (move,) = live.step(300).moves
    assert (move.before.gpus, move.to.gpus) == (("s1/0", "s1/2"), ("s0/0", "s0/1"))
    assert live.state()["jobs"][0]["figures"]["done"] == 120 * 10**15


def test_what_is_known_of_a_job_stays_but_for_where_it_runs() -> None:
    live = made_of()
    live.handle(JobSubmitted(0, job()))
    live.handle(JobSubmitted(0, job("b")))
    live.step(0)
    live.handle(JobProgressed(10, "a", 50.0))
    told = live.handle(JobRunning(20, job(iterations=7), ("s1/0", "s1/1"), 5, queue="other"))
    assert told == ("job 'a' is known: what its record says anew is not read",)
    one = live.state()["jobs"][0]
    assert one["trace"]["iterations"] == 1000 and one["figures"]["done"] == 50 * 10**15 and one["queue"] == ""
    assert runs(live) == {"a": ("s1/0", "s1/1"), "b": ("s0/2", "s0/3")}
    live.handle(JobRunning(30, job("b"), ("s0/2", "s0/3"), 0, 9.0))
    assert live.state()["jobs"][1]["figures"] == {"job": 1, "done": 9 * 10**15, "gpu_us": 60, "run_us": 30, "starts": 1}
    change = live.step(30)
    assert not change.starts and not change.stops and not change.moves


def test_a_job_leaves_those_that_it_shared_gpus_with() -> None:
    live = made_of("jigsaw:depth=free", 1)
    for name in "ab":
        live.handle(JobSubmitted(0, job(name, 4)))
    assert len(live.step(0).starts) == 2
    link = Link("to-s1", ("s1", "switch"), 10**9, 10)
    live.handle(ServerAdded(0, replace(star("v").servers[0], name="s1"), (link,)))
    with misuse("contradiction $.gpus", naming=["job 'b'"]):
        live.handle(JobRunning(5, job("a", 4), ("s0/3", "s1/0", "s1/1", "s1/2"), 0))
    assert live.handle(JobRunning(5, job("a", 4), ("s0/0", "s0/1", "s0/2", "s0/3"), 0)) == ()
    assert len(live.state()["shares"]) == 1
    live.handle(JobRunning(5, job("a", 4), ("s1/0", "s1/1", "s1/2", "s1/3"), 0))
    change = live.step(5)
    assert not change.starts and not change.stops and {move.to.job for move in change.moves} <= {"a", "b"}
    assert {name: gpus[0] for name, gpus in runs(live).items()} == {"a": "s1/0", "b": "s0/0"}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (JobRunning(9, job(), ("s0/4", "s0/2"), 0), "unknown-name $.gpus[0]"),
        (JobRunning(9, job(), ("s0/2", "s0/2"), 0), "duplicate-name $.gpus[1]"),
        (JobRunning(9, job(), (), 0), "wrong-count $.gpus"),
        (JobRunning(9, job(), ("s0/2", 5), 0), "wrong-type $.gpus[1]"),  # type: ignore[arg-type]
        (JobRunning(9, job(), "s0/2", 0), "wrong-type $.gpus"),  # type: ignore[arg-type]
        (JobRunning(9, job(), ("s0/2", "s0/3"), 10), "wrong-order $.started_us"),
        (JobRunning(9, job(), ("s0/2", "s0/3"), 0, -1.0), "out-of-range $.iterations"),
        (JobRunning(9, job(), ("s0/1", "s0/2"), 0), "contradiction $.gpus"),
        (JobRunning(9, job(), ("s0/2",), 0), "contradiction $.gpus"),
        (JobRunning(9, job(gpu_types=("w",)), ("s0/2", "s0/3"), 0), "unsupported $.job"),
        (JobRunning(9, job(), ("s1/2", "s1/3"), 0), "contradiction $.gpus"),
        (JobRunning(9, job(), ("s2/2", "s2/3"), 0), "contradiction $.gpus"),
        (JobRunning(9, job(), ("s0/3", "s3/3"), 0), "contradiction $.gpus"),
        (JobRunning(9, job("gone"), ("s0/2", "s0/3"), 0), "wrong-order $.job.name"),
        (JobRunning(9, job(model="other"), ("s0/2", "s0/3"), 0), "unsupported $.job"),
        (JobRunning(4, job(), ("s0/2", "s0/3"), 0), "wrong-order $.time_us"),
    ],
)
def test_a_job_cannot_run_where_it_cannot_be(event: Any, expected: str) -> None:
    live = made_of(servers=4)
    live.handle(JobSubmitted(5, job("other")))
    live.handle(JobSubmitted(5, job("gone", 1)))
    live.step(5)
    for one in (JobCancelled(5, "gone"), ServerLost(5, "s1"), ServerDrained(5, "s2"), LinkDown(5, "l3")):
        live.handle(one)
    before = in_json(live.state())
    with misuse(expected):
        live.handle(event)
    assert in_json(live.state()) == before


def test_a_job_that_waits_for_its_quota_runs_all_the_same_when_it_does_in_truth() -> None:
    live = made_of()
    live.handle(QuotaChanged(0, "q", 1))
    live.handle(JobSubmitted(0, job(), "q"))
    assert not live.step(0).starts
    live.handle(JobRunning(5, job(), ("s0/0", "s0/1"), 2))
    live.handle(JobSubmitted(5, job("b", 1), "q"))
    change = live.step(5)
    assert not change.starts and not change.stops and runs(live) == {"a": ("s0/0", "s0/1")}
    live.handle(JobFinished(6, "a"))
    assert [start.to.job for start in live.step(6).starts] == ["b"]


def test_a_policy_that_has_forgotten_all_is_told_of_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    """The loads of SJF-BCO, as printed, are of so many GPUs."""
    live = made_of("sjf_bco:variant=literal")
    live.handle(JobRunning(5, job(), ("s0/1", "s0/3"), 0))
    live.handle(JobSubmitted(5, job("b")))
    live.step(5)
    before = runs(live)
    server = replace(live.cluster.servers[0], name="more")
    live.handle(ServerAdded(6, server, (Link("to-more", ("more", "switch"), 10**9, 10),)))
    assert carries("".join(caplog.messages), "forgotten")
    live.handle(JobSubmitted(6, job("c", 8)))
    change = live.step(6)
    assert not change.failure and not change.stops and [start.to.job for start in change.starts] == ["c"]
    assert before.keys() == {"a", "b"} and before.items() <= runs(live).items()


OTHERS = ("fifo", "las", "srtf", "priority", "sjf_bco", "backfill:estimates=recent", "separate")
WHOLE = ("s0/0", "s0/1", "s0/2", "s0/3")


@pytest.mark.parametrize("policy", ["jigsaw:depth=free", *OTHERS])
def test_jobs_that_share_gpus_in_truth_are_taken_over_and_go_on(policy: str) -> None:
    live = made_of(policy, 1)
    for name in "ab":
        assert live.handle(JobRunning(5, job(name, 4), WHOLE, 0)) == ()
    assert len(live.state()["shares"]) == 1 and runs(live) == {"a": WHOLE, "b": WHOLE}
    change, again = live.step(5), made_of(policy, 1)
    assert not (change.failure or change.starts or change.stops or any(move.restarts for move in change.moves))
    again.restore(in_json(live.state()))
    for one in (live, again):
        one.handle(JobSubmitted(5, job("c", 4)))
    change = live.step(5)
    assert not change.failure and again.step(5) == change
    if policy in OTHERS:  # a policy that has no jobs share GPUs leaves them alone until one ends
        assert runs(live) == {"a": WHOLE, "b": WHOLE} and live.state()["jobs"][0]["held"]
    live.handle(JobFinished(6, "a"))
    assert not live.step(6).failure and not live.state()["jobs"][0]["held"]


@pytest.mark.parametrize("policy", OTHERS)
def test_jobs_that_share_gpus_outlive_a_policy_that_shares_none(policy: str) -> None:
    live, other = made_of("jigsaw:depth=free", 1), made_of(policy, 1)
    for name in "abc":
        live.handle(JobSubmitted(0, job(name, 4)))
    assert len(live.step(0).starts) == 2
    lost = other.restore(in_json(live.state()))
    assert not [one for one in lost if "waits" in one]
    other.handle(JobProgressed(5, "a", 1.0))
    change = other.step(5)
    assert not change.failure and not change.stops and runs(other) == runs(live)


def test_a_job_shares_gpus_only_where_its_speed_there_is_known() -> None:
    live = LiveScheduler(star("v"), "fifo", round_us=0)
    live.handle(JobRunning(5, job("a", 4), WHOLE, 0))
    with misuse("contradiction $.gpus", naming=["alone"]):
        live.handle(JobRunning(5, job("b", 4), WHOLE, 0))
