"""The soak of the live scheduler checks what it says."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import live_soak
import pytest


def test_a_short_soak_goes_through() -> None:
    figures = dict(
        zip(live_soak.HEADS, live_soak.row("las", Namespace(events=210, jobs=20, budget=None, seed=3, servers=64)))
    )
    assert (figures["steps"], figures["late"], figures["failures"]) == ("210", "0", "0")
    assert int(figures["starts"]) > 20 and figures["state ms"] != "-"


def test_what_must_not_run_is_noticed() -> None:
    soak = live_soak.Soak("fifo", 20, 0)
    while len(soak.running) < 3:
        soak.live.handle(soak.event())
        soak.carry_out(soak.live.step(soak.now_us))
    soak.check()
    first, second = list(soak.running)[:2]
    whole = dict(soak.running)
    soak.running[first] = replace(whole[first], gpus=whole[second].gpus)
    with pytest.raises(AssertionError, match="belongs to"):
        soak.check()
    soak.running = whole
    server = whole[first].gpus[0].rpartition("/")[0]
    soak.servers[server] = replace(soak.servers[server], gpu_memory=1)
    with pytest.raises(AssertionError, match="memory"):
        soak.check()
    soak.out.add(server)
    with pytest.raises(AssertionError, match="which is out"):
        soak.check()
