"""Signals that ask to end are heard where something is to be kept, and are given back as they were."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from jigsaw_opt.documents import write_atomically
from jigsaw_opt.instances import load
from jigsaw_opt.solvers.options import Options
from jigsaw_opt.solvers.result import Event, StoppedBy
from jigsaw_opt.solvers.solve import solve
from jigsaw_opt.system import interrupts
from jigsaw_opt.system.interrupts import SIGNALS, held, on_interrupt


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """As in a program that has set none, also where the tests run in the background and inherit others."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    interrupts.keeps()
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def dispositions() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_calls_once_and_two_change_nothing(number: int) -> None:
    calls: list[int] = []
    before = dispositions()
    with on_interrupt(lambda: calls.append(1)):
        for _ in range(5):  # all within a second: one Ctrl-C may come several times
            signal.raise_signal(number)
    assert calls == [1]
    assert dispositions() == before


def test_who_insists_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_PATIENCE_SECONDS", 0.0)
    calls: list[int] = []
    before = dispositions()
    with pytest.raises(KeyboardInterrupt), on_interrupt(lambda: calls.append(1)):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        calls.append(2)
        signal.raise_signal(signal.SIGINT)
        calls.append(3)
    assert calls == [1, 2]
    assert dispositions() == before


def test_an_inner_listener_tells_the_outer_one() -> None:
    calls: list[str] = []
    with on_interrupt(lambda: calls.append("outer")):
        with on_interrupt(lambda: calls.append("inner")):
            signal.raise_signal(signal.SIGTERM)
        with on_interrupt(lambda: calls.append("second")):
            signal.raise_signal(signal.SIGTERM)
    assert calls == ["inner", "outer", "second"]


def test_handlers_of_the_program_around_are_called_or_left_alone() -> None:
    heard: list[int] = []

    def own(number: int, _: FrameType | None) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, own)
    signal.signal(signal.SIGTERM, own)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before, calls = dispositions(), []
    with on_interrupt(lambda: calls.append(1)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        assert (heard, calls) == ([signal.SIGTERM], [])
        signal.raise_signal(signal.SIGINT)
    assert (heard, calls) == ([signal.SIGTERM, signal.SIGINT], [1])
    assert dispositions() == before


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with on_interrupt(pytest.fail), held():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_touch_nothing() -> None:
    found: list[object] = []

    def look() -> None:
        with on_interrupt(pytest.fail), held():
            found.extend(dispositions())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == dispositions()


def test_a_signal_waits_for_the_end_of_what_must_not_be_cut() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        with held():
            signal.raise_signal(signal.SIGINT)
            done.append("all")
        done.append("more")
    assert done == ["all"]
    with pytest.raises(KeyboardInterrupt), held():  # a failure does not swallow it
        signal.raise_signal(signal.SIGINT)
        raise ValueError


def ended_in_a_child(work: Callable[[], None]) -> int:
    """Exit code of a fork that does some work as a program does."""
    child = os.fork()
    if child == 0:
        try:
            interrupts.as_program()
            work()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_program_ends_at_once_but_for_what_is_held(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with held():
            signal.raise_signal(signal.SIGTERM)
            os.write(1, b"whole")
        os.write(1, b"more")

    assert ended_in_a_child(work) == 130
    assert capfd.readouterr() == ("whole", "interrupted: nothing was kept\n")


def test_a_program_says_what_it_had_kept_before_it_was_interrupted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        write_atomically(tmp_path / "plan.json", b"{}")
        signal.raise_signal(signal.SIGTERM)

    assert ended_in_a_child(work) == 130
    assert capfd.readouterr().err == f"interrupted: {tmp_path}/plan.json is written\n"


def test_a_program_whose_work_is_done_keeps_its_exit_code() -> None:
    def work() -> None:
        interrupts.settled(7)
        signal.raise_signal(signal.SIGHUP)

    assert ended_in_a_child(work) == 7


def test_a_solve_in_a_program_ends_with_its_plan() -> None:
    before = dispositions()

    def twice(event: Event) -> None:
        if event.objective is not None:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    result = solve(load("server/weighted"), "cpsat", Options(threads=1), on_event=twice)
    assert result.stopped_by is StoppedBy.INTERRUPT and result.plan is not None
    assert dispositions() == before
