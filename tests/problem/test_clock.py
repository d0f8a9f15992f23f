"""The clock of a solve: who looks at it is told when the time is over."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jigsaw_opt.errors import OutOfTimeError
from jigsaw_opt.problem.clock import Clock, check_deadline, checking_deadline, current, halting, in_context, limited


def over() -> Clock:
    return Clock(0.0, threading.Event())


def test_nobody_is_stopped_without_a_limit() -> None:
    check_deadline()
    assert list(checking_deadline([1, 2])) == [1, 2]
    with limited(Clock(None, threading.Event())):
        check_deadline()


def test_a_limit_ends_what_looks() -> None:
    with limited(over()):
        with pytest.raises(OutOfTimeError):
            check_deadline()
        with pytest.raises(OutOfTimeError):
            list(checking_deadline([1]))
    check_deadline()


def test_a_cancel_ends_it_after_the_grace() -> None:
    cancel = threading.Event()
    at_once, later = Clock(None, cancel), Clock(None, cancel, grace=3600.0)
    assert not at_once.over and not later.over
    cancel.set()
    assert at_once.over and not later.over


def test_time_kept_back_is_not_there() -> None:
    clock = Clock(3600.0, threading.Event())
    clock.has_plan(1800.0)
    clock.has_plan(1801.0)
    assert not clock.over
    clock.has_plan(3600.0)
    assert clock.over


def test_without_a_plan_the_time_is_over_sooner() -> None:
    clock = Clock(3600.0, threading.Event())
    clock.end_without_plan(0.0)
    assert clock.over and clock.left == 0.0
    clock.has_plan(0.0)
    assert not clock.over and clock.left > 0.0


def test_another_thread_is_limited_only_in_the_context() -> None:
    with limited(over()), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current).result() is None
        with pytest.raises(OutOfTimeError):
            pool.submit(in_context(check_deadline)).result()


def test_a_flag_is_raised_for_what_cannot_look() -> None:
    flag, cancel = [0], threading.Event()
    with limited(Clock(None, cancel)), halting(flag):
        assert flag == [0]
        cancel.set()
        while not flag[0]:
            pass
