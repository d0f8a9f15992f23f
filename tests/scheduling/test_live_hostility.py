"""Nothing poisons a live scheduler: what is refused changes nothing, and what is taken in replays and restores."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jigsaw_opt.errors import UsageError
from tests.scheduling.live_cases import CASES, in_json, made
from tests.scheduling.live_hostility import Hostility, good_job_starts


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
            assert live.explain(name, 0.0).job == name and in_json(live.state()) == state
        assert in_json(again.state()) == state
    if hostility.now_us < 2**52:
        assert good_job_starts(live, hostility, text)


@pytest.mark.parametrize("text", [text for text in CASES if not text.startswith("jigsaw")])
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_any_events_leave_it_whole(text: str, seed: int) -> None:
    hold_out(text, seed, 40)
