"""What a live scheduler foretells, its clock and its journal, and options of policies that take many values."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from typing import Any

import pytest

from jigsaw_opt.documents.readers.times import slurm_time_s
from jigsaw_opt.errors import UsageError
from jigsaw_opt.problem.workload import TraceJob
from jigsaw_opt.scheduling import JobFinished, JobProgressed, JobRunning, JobSubmitted, LiveScheduler, QuotaChanged
from jigsaw_opt.scheduling.live.start_prediction import Foretold, corrected
from jigsaw_opt.scheduling.option_values import file_names, hours, hours_us, slurm_times, whole_numbers
from jigsaw_opt.scheduling.policy import choose
from tests.refusals import misuse
from tests.scheduling.live_cases import CASES, SECOND, in_json, made, runs, star
from tests.scheduling.live_invariants import RunCluster
from tests.scheduling.test_live_events import job as small_job
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


@pytest.mark.parametrize("limits", [{}, {"moves_per_hour": 0}])
def test_a_job_waits_for_the_end_of_one_that_may_not_be_stopped(limits: dict[str, int]) -> None:
    live = LiveScheduler(star("a", "a"), "srtf", restart_us=0, **limits)  # type: ignore[arg-type]
    live.handle(JobSubmitted(0, TraceJob("a", 0, "m", 8, 600, preemptible=False if not limits else None)))
    live.step(0)
    live.handle(JobSubmitted(60 * SECOND, TraceJob("b", 0, "m", 1, 60)))
    assert "has to stay" in live.step(60 * SECOND).failure
    live.handle(JobProgressed(120 * SECOND, "a", 120))
    live.step(120 * SECOND)
    assert live.when("b").starts_us == (600 * SECOND,)
    live.handle(JobFinished(600 * SECOND, "a"))
    assert [one.to.job for one in live.step(600 * SECOND).starts] == ["b"]


def test_jobs_that_wait_for_a_time_for_others_or_for_their_array_are_foretold() -> None:
    live = LiveScheduler(star("a", "a"), "fifo", restart_us=0)
    for k in range(3):
        live.handle(JobSubmitted(0, TraceJob(f"t{k}", 0, "m", 1, 300 + 300 * k, array="t", array_limit=1)))
    late = TraceJob("late", 360 * SECOND, "m", 1, 60)
    for own in (late, TraceJob("x", 0, "m", 1, 60, after=("late", "t0")), TraceJob("t", 0, "m", 1, 60, after=("x",))):
        live.handle(JobSubmitted(0, own))
    live.step(0)
    found = {name: live.when(name).starts_us for name in ("t1", "t2", "late", "x", "t")}
    seconds = {"t1": 300, "t2": 900, "late": 360, "x": 420, "t": 480}
    assert found == {name: (time * SECOND,) for name, time in seconds.items()}
    for now, ended in ((300, "t0"), (360, ""), (420, "late"), (480, "x"), (900, "t1")):
        if ended:
            live.handle(JobFinished(now * SECOND, ended))
        starts = [one.to.job for one in live.step(now * SECOND).starts]
        assert starts == [name for name, time in seconds.items() if time == now]


def test_refusals() -> None:
    live = busy("fifo")
    live.handle(QuotaChanged(110 * SECOND, "q", 1))
    live.handle(JobSubmitted(110 * SECOND, TraceJob("held", 0, "m", 4, 5), queue="q"))
    for name, why in {
        "x": "there is no job 'x'",
        "a": "job 'a' runs",
        "held": "not simulated: It waits for 4 GPUs within the quota of queue 'q'",
    }.items():
        with pytest.raises(UsageError, match=why):
            live.when(name)
    with misuse("out-of-range samples"):
        live.when("c", samples=0)


NOTHING = Foretold(0.0, 0.0, 1.0)


def test_ends_are_ranks_of_past_values() -> None:
    """A model that always says 0 leaves all to the past: of 1 to 99, the 5th from either end."""
    past = [(NOTHING, float(k)) for k in range(1, 100)]
    assert corrected(NOTHING, past, 0.9) == (5, 95)
    assert corrected(NOTHING, past, 0.5) == (25, 75)
    assert corrected(NOTHING, past, 0.0) == (50, 50)
    assert corrected(NOTHING, past[:1], 0.9) == (1, 1), "of few, the outermost"


def test_errors_are_in_units_of_the_model() -> None:
    past = [(Foretold(10, 20, 2.0), 24.0)] * 30
    assert corrected(Foretold(100, 200, 1.0), past, 0.9) == (107, 202)
    assert corrected(Foretold(100, 104, 10.0), past, 0.9) == (147, 147), "where the ends would cross, between them"


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_intervals_hold_as_often_as_they_say(share: float) -> None:
    """The model foretells half of the wait, and is far too sure."""
    random, hits = Random(5), 0
    for _ in range(2000):
        past = []
        for _ in range(40):
            scale = random.uniform(1, 9)
            past.append((Foretold(scale * 0.45, scale * 0.55, scale), scale * random.expovariate(1)))
        *before, (asked, value) = past
        low, high = corrected(asked, before, share)
        hits += low <= value <= high
    assert hits / 2000 == pytest.approx(share, abs=0.025)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:15", 1815), ("2:30:15", 9015), ("7-0", 604_800), ("1-2:3", 93_780), ("1-02:03:04", 93_784)],
)
def test_times_of_slurm(text: str, seconds: int) -> None:
    assert slurm_time_s(text) == seconds and text in slurm_times("none")


def test_what_is_no_time_of_slurm() -> None:
    for text in ("1-", "1:2:3:4", "soon", "-5"):
        assert slurm_time_s(text) is None and text not in slurm_times("none")


def test_hours() -> None:
    for text, minutes in {"24": 1440, "0.5": 30, "30min": 30, "2h": 120, "0": 0}.items():
        assert text in hours("none") and hours_us(text) == minutes * 60_000_000


def test_values_beside_those_that_are_listed() -> None:
    numbers = whole_numbers("none", "5", most=10)
    assert list(numbers) == ["none", "5"]
    assert [text in numbers for text in ("none", "7", "10", "11", "1.5", "", "-1", "٣")] == [True] * 3 + [False] * 5
    assert "any/file.txt" in file_names() and "" not in file_names()
    assert 5 not in numbers


def test_the_command_line_says_what_an_option_takes() -> None:
    with misuse("out-of-range policy.grace") as caught:
        choose("priority:grace=long")
    assert str(caught.value).startswith("'grace' of policy 'priority' is not 'long'; it is a whole number from 0 to")
    assert choose("priority:grace=45")[1]["grace"] == "45"
    with misuse("unknown-option policy.priority_weight", naming=["'priority_weight'"]):
        choose("multifactor:priority_weight=3")


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
    journal, truth = FailingJournal(random.Random(text), 0.3), RunCluster(text, 5)
    live, again, changes = made(text, journal=journal), made(text), []
    for _ in range(12):
        for event in (truth.event() for _ in range(2)):
            before = in_json(live.state())
            while True:
                try:
                    live.handle(event)
                    truth.hear(event)
                    break
                except OSError:
                    assert in_json(live.state()) == before
                except UsageError:
                    assert isinstance(event, JobSubmitted | JobRunning)  # of a job that cannot run there
                    break
        before = in_json(live.state())
        while True:
            try:
                changes.append(live.step(truth.now_us + len(changes)))
                break
            except OSError:
                assert in_json(live.state()) == before
        truth.now_us += len(changes)
        truth.gpus = runs(live)
    assert journal.refused
    assert [change for entry in journal.entries if (change := again.replay(entry)) is not None] == changes
    assert in_json(again.state()) == in_json(live.state())


def test_a_late_decision_that_no_journal_takes_stays_late() -> None:
    journal = FailingJournal(random.Random(0), 0.0)
    live = LiveScheduler(star("v"), "fifo", round_us=0, journal=journal)
    live.handle(JobSubmitted(0, small_job(gpus=1)))
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
        live.handle(JobSubmitted(0, small_job(name=f"j{number}", gpus=1)))
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
