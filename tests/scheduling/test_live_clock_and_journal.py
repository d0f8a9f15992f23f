"""Journals that fail, and clocks that threads read."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from jigsaw_opt.problem.cluster import Cluster
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import JobFinished, JobSubmitted, LiveScheduler
from jigsaw_opt.scheduling.performance.profiled import Profiled
from tests.refusals import misuse
from tests.scheduling.live_cases import CASES, MODELS, Happening, in_json, made, star
from tests.scheduling.test_live_events import job


class FailingJournal:
    """A journal that now and then cannot be written; what it has not refused is in `entries`."""

    def __init__(self, draw: random.Random, failures: float) -> None:
        self._draw, self._failures = draw, failures
        self.entries: list[Any] = []
        self.refused = 0

    def __call__(self, entry: Any) -> None:
        if self._draw.random() < self._failures:
            self.refused += 1
            raise OSError("no space left")
        self.entries.append(in_json(entry))


@pytest.mark.parametrize("text", CASES)
def test_whatever_a_journal_refuses_its_replay_is_the_scheduler(text: str) -> None:
    journal, happening = FailingJournal(random.Random(text), 0.3), Happening(text, 5)
    live, again, changes = made(text, journal=journal), made(text), []
    for _ in range(12):
        for event in happening.events():
            before = in_json(live.state())
            while True:
                try:
                    live.handle(event)
                    break
                except OSError:
                    assert in_json(live.state()) == before
        before = in_json(live.state())
        while True:
            try:
                changes.append(live.step(happening.now_us + len(changes)))
                break
            except OSError:
                assert in_json(live.state()) == before
        happening.now_us += len(changes)
    assert journal.refused
    assert [change for entry in journal.entries if (change := again.replay(entry)) is not None] == changes
    assert in_json(again.state()) == in_json(live.state())


def test_a_step_that_no_journal_takes_is_done_again_by_the_next() -> None:
    entries: list[Any] = []
    full = False

    def journal(entry: Any) -> None:
        if full:
            raise OSError("no space left")
        entries.append(in_json(entry))

    live = LiveScheduler(star("v"), "fifo", round_us=0, journal=journal)
    live.handle(JobSubmitted(0, job(name="c", gpus=1)))
    full = True
    with pytest.raises(OSError, match="no space"):
        live.step(1)
    full = False
    live.handle(JobSubmitted(1, job(name="d", gpus=1)))
    change = live.step(1)
    assert [start.to.job for start in change.starts] == ["c", "d"]
    again = LiveScheduler(star("v"), "fifo", round_us=0)
    assert [again.replay(entry) for entry in entries][-1] == change


def test_timetables_that_were_found_outlive_a_refused_step() -> None:
    kept: list[Profiled] = []

    def performance(cluster: Cluster) -> Profiled:
        kept.append(Profiled(cluster, MODELS))
        return kept[-1]

    journal = FailingJournal(random.Random(0), 0.0)
    live = LiveScheduler(star("v"), "jigsaw", performance=performance, round_us=0, journal=journal)
    for name, model in (("a", "small"), ("b", "large"), ("c", "large")):
        live.handle(JobSubmitted(0, TraceJob(name, 0, model, 4, 1000)))
    journal._failures = 1.0
    with pytest.raises(OSError, match="no space"):
        live.step(1)
    (found,) = (sum(one.found for one in each.timetables.values()) for each in kept)
    assert found > 0
    journal._failures = 0.0
    assert live.step(1).starts
    assert found == sum(one.found for one in kept[0].timetables.values())


def test_a_late_decision_that_no_journal_takes_stays_late() -> None:
    journal = FailingJournal(random.Random(0), 0.0)
    live = LiveScheduler(star("v"), "fifo", round_us=0, journal=journal)
    live.handle(JobSubmitted(0, job(gpus=1)))
    again = LiveScheduler(star("v"), "fifo", round_us=0)
    live.replay({"event": "step", "time_us": 1, "late": True})
    for entry in journal.entries:
        again.replay(entry)
    journal._failures = 1.0
    with pytest.raises(OSError, match="no space"):
        live.state()
    journal._failures = 0.0
    live.state()
    assert [entry["event"] for entry in journal.entries] == ["submit", "step", "taken"]
    again.replay(journal.entries[-1])
    assert in_json(again.state()) == in_json(live.state())


def test_threads_with_one_clock_never_see_time_go_back() -> None:
    ticks = count(1)
    journal: list[Any] = []
    live = LiveScheduler(star("v"), "fifo", journal=journal.append, clock=lambda: next(ticks))

    def come_and_go(number: int) -> None:
        live.handle(JobSubmitted(0, job(name=f"j{number}", gpus=1)))
        live.step()
        live.handle(JobFinished(0, f"j{number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(40)))
    times = [entry["time_us"] for entry in journal]
    assert times == sorted(times) == list(range(1, 121))
    again = LiveScheduler(star("v"), "fifo")
    for entry in in_json(journal):
        again.replay(entry)
    assert again.state() == live.state()


def test_a_clock_that_is_set_back_stands_still() -> None:
    times = iter((5, 3, 9))
    live = LiveScheduler(star("v"), "fifo", clock=lambda: next(times))
    assert [live.step().time_us for _ in range(3)] == [5, 5, 9]
    with misuse("wrong-type now_us"):
        LiveScheduler(star("v"), "fifo").step()
