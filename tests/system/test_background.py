"""Calls in the background: what they return and raise, and a process that ends while one of them does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from threading import Event, get_ident

import pytest

from jigsaw_opt.system.background import Background

LONG = 60.0
"""Seconds that nothing here takes, on any machine."""
NATIVE = """
import atexit, ctypes, sys
from jigsaw_opt.system.background import Background
from jigsaw_opt.system.interrupts import end_at_once
work = Background([lambda: ctypes.CDLL(None).sleep(1000)], "native")
assert not work.ended(0.1)
work.leave()
atexit.register(print, "atexit")
"""


def waiting_for(flag: Event) -> Callable[[], bool]:
    return lambda: flag.wait(LONG)


def test_calls_return_in_their_order_and_raise() -> None:
    work = Background([lambda k=k: k * k for k in range(5)], "squares", threads=2)
    assert work.ended(LONG)
    assert work.results() == [0, 1, 4, 9, 16]
    failing = Background([lambda: 1, lambda: 1 // 0], "failing")
    assert failing.ended(LONG)
    with pytest.raises(ZeroDivisionError):
        failing.results()


def test_so_many_calls_run_at_once_and_no_more() -> None:
    first, second = Event(), Event()
    both = Background([lambda: (first.set(), second.wait(LONG))[1], lambda: second.set() or first.wait(LONG)], "b", 2)
    assert both.ended(LONG)
    assert both.results() == [True, True]
    alone = Background([get_ident] * 20, "alone", 1)
    assert alone.ended(LONG)
    assert len(set(alone.results())) == 1


def test_what_is_left_behind_begins_no_further_call() -> None:
    flag, begun = Event(), Event()
    work = Background([waiting_for(flag), lambda: begun.set() or True], "left")
    assert not work.ended(0.01)
    work.leave()
    flag.set()
    for thread in work._threads:
        thread.join(LONG)
        assert not thread.is_alive()
    assert not begun.is_set()


@pytest.mark.parametrize("ending", ["sys.exit(7)", "end_at_once(7)"])
def test_a_process_ends_with_its_code_while_native_code_goes_on(ending: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NATIVE + ending], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "atexit\n", "")
