"""The demonstration plays a trace into a service: jobs come, run, end and come again, and servers are out of use."""

from __future__ import annotations

import threading
from pathlib import Path

from jigsaw_opt.problem.workload import TraceJob
from tests.serving.services import START_US, HandClock, served, submit

from jigsaw_opt.serving.demo import FastClock, TracePlayer  # isort: skip

HOUR_US = 3_600_000_000


def test_jobs_come_run_end_and_come_again(tmp_path: Path) -> None:
    clock = HandClock()
    trace = [TraceJob("a", 0, "m", 4, 1000), TraceJob("wide", 0, "m", 9, 1000), TraceJob("b", 10, "m", 8, 3000)]
    with served(tmp_path, clock=clock) as found:
        player = TracePlayer(found.service, trace)
        stories: dict[str, list[str]] = {}
        found.post(submit("mine", 2))
        for minute in range(0, 150, 2):
            clock.now_us = START_US + minute * 60_000_000
            player.tick()
            while found.service._is_due or found.service._derived:
                threading.Event().wait(0.002)
        for name in ("a", "b", "a.1", "mine"):
            told = found.get(f"/v1/jobs/{name}")
            stories[name] = [row["what"] for row in told["story"] if row["what"] not in ("progress", "move")]
            assert any(row["what"] == "progress" and row["who"] == "demo" for row in told["story"])
        assert stories == {name: ["submit", "start", "finish"] for name in stories}
        found.get("/v1/jobs/wide", 404)
        assert max(found.get("/v1/usage")["in_use"]) == 8


def test_a_server_is_out_of_use_now_and_then(tmp_path: Path) -> None:
    clock = HandClock()
    with served(tmp_path, clock=clock) as found:
        player, states = TracePlayer(found.service, [TraceJob("a", 0, "m", 1, 10**9)]), []
        for hour in range(9):
            clock.now_us = START_US + hour * HOUR_US
            player.tick()
            states.append([server["state"] for server in found.get("/v1/cluster")["servers"]])
    up = ["up", "up"]
    assert states == [up, up, ["drained", "up"], up, up, ["up", "down"], up, up, ["cordoned", "up"]]


def test_the_clock_goes_faster_and_never_back() -> None:
    clock = FastClock(1_000_000)
    times = [clock() for _ in range(100)]
    assert times == sorted(times) and times[-1] - times[0] > 1000
