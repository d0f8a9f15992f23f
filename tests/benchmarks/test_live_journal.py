"""The benchmark of failing journals compares what it says."""

from __future__ import annotations

import live_journal
import pytest


@pytest.mark.parametrize("budgets", [False, True])
def test_a_replay_of_few_events_is_the_scheduler(budgets: bool) -> None:
    figures = dict(zip(live_journal.HEADS, live_journal.row("fifo", 60, 0.3, budgets, 1), strict=True))
    assert int(figures["refused"]) > 10
    assert (figures["changes equal"], figures["state equal"]) == ("yes", "yes")
