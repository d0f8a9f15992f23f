"""Objects in processes of their own: answers, exceptions, and ends of either side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from jigsaw_opt.system.companions import LocalCompanion, LostCompanionError
from tests.processes import alive, wait_for
from tests.refusals import carries

WITHOUT_GUARD = """
import time
from collections import Counter
from jigsaw_opt.system.companions import LocalCompanion
print("begun", flush=True)
companion = LocalCompanion(Counter)
companion.ask("update", "aab")
print(companion.ask("total"), companion.number, flush=True)
time.sleep(1000)
"""


def test_an_object_answers_until_it_is_ended() -> None:
    companion = LocalCompanion(Counter)
    companion.ask("update", {"a": 2})
    assert companion.ask("most_common") == [("a", 2)]
    companion.end()
    with pytest.raises(LostCompanionError) as caught:
        companion.ask("total")
    assert carries(str(caught.value), "SIGKILL")


def test_a_process_that_cannot_begin_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(LostCompanionError) as caught:
        LocalCompanion(Counter)
    assert carries(str(caught.value), "/nowhere/python")


def test_what_the_object_raises_is_told() -> None:
    with pytest.raises(LostCompanionError) as caught:
        LocalCompanion(Counter).ask("pop", "b")
    assert carries(str(caught.value), "KeyError", "b")


def test_what_cannot_travel_is_refused() -> None:
    with pytest.raises(LostCompanionError) as caught:
        LocalCompanion(Counter).ask("update", {threading.Lock(): 1})
    assert carries(str(caught.value), "lock")


def test_what_another_thread_changes_meanwhile_is_pickled_anew() -> None:
    class Changing:
        left = 1

        def __reduce__(self) -> tuple[type[str], tuple[str]]:
            if Changing.left:
                Changing.left -= 1
                raise RuntimeError("dictionary changed size during iteration")
            return str, ("a",)

    companion = LocalCompanion(Counter)
    companion.ask("update", Changing())
    assert companion.ask("total") == 1
    companion.end()


def test_who_waits_for_an_answer_hears_of_the_end() -> None:
    companion = LocalCompanion(Counter)
    os.kill(companion.number, signal.SIGSTOP)  # so that the answer never comes
    threading.Timer(0.1, companion.end).start()
    with pytest.raises(LostCompanionError):
        companion.ask("total")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_script_needs_no_guard_and_takes_its_process_along(number: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_GUARD)
    errors = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=errors, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        told, child = parent.stdout.readline().split()
        assert told == "3" and alive(int(child))
        parent.send_signal(number)
    wait_for(lambda: not alive(int(child)))
